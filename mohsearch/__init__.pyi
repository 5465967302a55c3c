from mohsearch.api import ablate as ablate
from mohsearch.api import compare as compare
from mohsearch.api import open_results as open_results
from mohsearch.api import plot as plot
from mohsearch.api import read_fronts as read_fronts
from mohsearch.api import run_study as run_study

__version__: str
