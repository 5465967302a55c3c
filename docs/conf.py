"""Documentation site: `make docs` builds it; every warning is an error."""

from mohsearch import __version__

project = "mohsearch"
author = "the mohsearch authors"
copyright = author
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
templates_path = ["_templates"]
exclude_patterns = ["_templates"]

html_theme = "furo"
html_title = f"mohsearch {version}"
html_show_sphinx = False
html_copy_source = False

myst_heading_anchors = 3
myst_links_external_new_tab = False
# Pages name files of the repository (studies, tests); those are no pages of this site.
suppress_warnings = ["myst.xref_missing"]

autosummary_generate = True
autodoc_typehints = "description"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "show-inheritance": True}
# Optional at run time; what needs them imports them only when it is called.
autodoc_mock_imports = ["torch", "onnx", "ortools"]
napoleon_google_docstring = False
napoleon_numpy_docstring = True
napoleon_use_rtype = False
napoleon_use_ivar = True
nitpicky = False
