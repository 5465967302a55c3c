"""Sets of models that one accelerator is to train well."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field

from mohsearch.core.cards import Card, read_card
from mohsearch.core.catalog import Catalog
from mohsearch.workloads.hf_config import ModelConfig, load_model

FOLDER = "workloads/training_sets"


class TrainingSetCard(Card):
    """A named set, ``problems/workloads/training_sets/<name>.yaml``."""

    title: str
    source: str
    models: tuple[str, ...] = Field(min_length=1)


def load_models(name: str, catalog: Catalog | None = None, **place: Any) -> tuple[ModelConfig, ...]:
    """Return one or several models.

    Parameters
    ----------
    name
        A model as :func:`mohsearch.workloads.hf_config.load_model` takes it, several of them joined
        by ``+``, or the name of a set on the shelf.
    catalog
        Where names are looked up.
    place
        ``base``, ``source`` and ``field`` for messages and relative paths.

    Raises
    ------
    InputError
        If a name or a file is wrong.

    Examples
    --------
    >>> [model.layers for model in load_models("bert-large+llama2-7b")]
    [24, 32]
    """
    shelf = catalog or Catalog()
    names: tuple[str, ...] = tuple(str(name).split("+"))
    if name in shelf.names("problems", FOLDER):
        path: Path = shelf.find("problems", name, folder=FOLDER, kind="training set")
        names = read_card(TrainingSetCard, path).models
        place = {"source": str(path), "field": "models"}
    return tuple(load_model(one, catalog, **place) for one in names)
