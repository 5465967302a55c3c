"""The card of an output folder: which study it belongs to.

It stands twice, in ``study.json`` and in the attributes of the results' root. Each has a digest of
itself, ``study.json`` that of the root's file too, and each is mended from the other.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import zarr

import mohsearch
from mohsearch.core.cards import read_json
from mohsearch.core.errors import InputError
from mohsearch.study.files import OutputFolder, write_json
from mohsearch.study.integrity import ATTRIBUTES_DIGEST, READING, has_chunks, is_sealed, sealed
from mohsearch.study.plan import Plan

FORMAT = 1
"""Raised when folders are written that earlier versions cannot read."""

_OURS = {
    ".lock",
    ".lock.card",
    ".locks",
    ".staging",
    ".manifests",
    "results.zarr",
    "failures.jsonl",
}
_ROOT_DIGEST = "root_digest"


def stored_card(folder: OutputFolder) -> dict[str, Any]:
    """Return the card of an output folder, from whichever of its places is sound.

    Raises
    ------
    InputError
        If there is none, both are damaged, or a newer version wrote it.
    """
    try:
        card = _sound_card(folder)
    except InputError:
        card = _root_card(folder)
        if card is None:
            raise
    if card is None:
        card = _root_card(folder)
    if card is None:
        problem = "holds no study" if folder.root.is_dir() else "no such folder"
        raise InputError(problem, source=folder.root)
    if card["format"] != FORMAT:
        raise InputError(
            f"was written by mohsearch {card.get('mohsearch_version', '?')} in format "
            f"{card['format']}; this is {mohsearch.__version__}, which knows format {FORMAT}",
            source=folder.root,
        )
    return card


def _sound_card(folder: OutputFolder) -> dict[str, Any] | None:
    """Return what ``study.json`` says, None where there is none; an InputError if damaged."""
    if not folder.card.is_file():
        return None
    card = read_json(folder.card)
    fields = ("format", "digest", "source", "roots", "spec")
    if not isinstance(card, dict) or any(field not in card for field in fields):
        raise InputError("is damaged: not the card of a study", source=folder.card)
    early = ATTRIBUTES_DIGEST not in card and _ROOT_DIGEST not in card
    if not early and not is_sealed(card):
        raise InputError("is damaged: its content has changed", source=folder.card)
    return card


def _root_card(folder: OutputFolder) -> dict[str, Any] | None:
    """Return the card that the root of the results holds, None if it is missing or damaged."""
    try:
        attributes = dict(zarr.open_group(folder.results, mode="r", zarr_format=3).attrs)
        if not is_sealed(attributes):
            return None
        return dict(json.loads(str(attributes["card"])))
    except READING:
        return None


def damaged_card(folder: OutputFolder) -> str | None:
    """Return which of the two places is damaged, None if neither is.

    Folders of early versions have one place without a digest; there is nothing to compare.
    """
    try:
        card = _sound_card(folder)
    except InputError:
        return f"{folder.card.name} has changed"
    if card is None:
        return None if _root_card(folder) is None else f"{folder.card.name} is missing"
    if _ROOT_DIGEST in card and card[_ROOT_DIGEST] != _root_digest(folder):
        return "the root's zarr.json has changed"
    return None


def _root_digest(folder: OutputFolder) -> str:
    try:
        return hashlib.sha256((folder.results / "zarr.json").read_bytes()).hexdigest()
    except OSError:
        return ""


def write_card(folder: OutputFolder, plan: Plan) -> None:
    """Write the card where it is missing or damaged."""
    if folder.card.is_file() and (folder.results / "zarr.json").is_file():
        if damaged_card(folder) is None:
            return
    study = plan.study
    spec = study.spec.model_dump(mode="json")
    card: dict[str, Any] = {
        "format": FORMAT,
        "name": study.spec.name,
        "digest": plan.digest,
        "source": str(study.source),
        "roots": [str(root) for root in study.catalog.roots],
        "mohsearch_version": mohsearch.__version__,
        "spec": spec,
    }
    attributes = {
        "study": study.spec.name,
        "title": study.spec.title,
        "spec": json.dumps(spec),
        "card": json.dumps(card),
        "mohsearch_version": mohsearch.__version__,
    }
    # a group written over another would take its runs with it
    if (folder.results / "zarr.json").is_file():
        (folder.results / "zarr.json").unlink()
    zarr.open_group(folder.results, mode="a", zarr_format=3, attributes=sealed(attributes))
    write_json(folder.card, sealed({**card, _ROOT_DIGEST: _root_digest(folder)}))


def check_folder(folder: OutputFolder, plan: Plan, *, strict: bool = False) -> None:
    """Refuse a folder that holds something else.

    ``strict`` refuses another study also before its first evaluation.

    Raises
    ------
    InputError
        If it is a file, or holds another study's evaluations or files that are not ours.
    """
    if folder.root.exists() and not folder.root.is_dir():
        raise InputError("is a file, not a folder", source=folder.root)
    if not folder.root.is_dir():
        return
    if not folder.card.is_file() and _root_card(folder) is None:
        _check_names(folder)
        return
    card = stored_card(folder)
    if card["digest"] != plan.digest and (strict or holds_evaluations(folder)):
        raise InputError(
            f"holds results of a different study ({card.get('name', 'unknown')}); "
            "choose another folder",
            source=folder.root,
        )


def _check_names(folder: OutputFolder) -> None:
    """Refuse a folder without a card, unless all it has is from a start that was cut off."""
    for path in sorted(folder.root.iterdir()):
        ours = path.name in _OURS or path.name.startswith(f".{folder.card.name}.")
        if not ours or (path == folder.results and holds_evaluations(folder)):
            raise InputError(
                f"is not empty and holds no study (it has {path.name}); choose another folder",
                source=folder.root,
            )


def forget_other_study(folder: OutputFolder, plan: Plan) -> None:
    """Clear a folder of a study that never evaluated anything, a wrong one that was mended say.

    Call it under the folder's lock, after :func:`check_folder`.
    """
    if not folder.root.is_dir() or holds_evaluations(folder):
        return
    try:
        same = stored_card(folder)["digest"] == plan.digest
    except InputError:
        same = False
    if not same:
        for path in (folder.results, folder.manifests, folder.staging):
            shutil.rmtree(path, ignore_errors=True)
        for path in (folder.card, *folder.root.glob(f".{folder.card.name}.*")):
            path.unlink(missing_ok=True)


def holds_evaluations(folder: OutputFolder) -> bool:
    """Tell whether any run has written a genome, or has a damaged part that waits for repair.

    Trials in a storage that several processes share count too.
    """
    return folder.journal.is_file() or any(
        has_chunks(path) for root in (folder.results, folder.staging) for path in _in(root)
    )


def _in(root: Path) -> list[Path]:
    return [path for path in root.iterdir() if path.is_dir()] if root.is_dir() else []
