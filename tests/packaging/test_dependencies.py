"""What the package is built from: bounds, lock file, licences."""

import configparser
import re
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PERMISSIVE = re.compile(
    r"\b(MIT|MIT-CMU|BSD|0BSD|Apache|ISC|HPND|PSF|Python Software Foundation|Zlib|Unlicense"
    r"|Zope|ZPL|Public Domain|CC0)\b",
    re.IGNORECASE,
)
OF_THE_FILE_OR_LIBRARY = re.compile(r"\b(LGPL|Lesser|MPL|Mozilla)", re.IGNORECASE)
OF_THE_PROGRAM = re.compile(r"(?<![A-Z])A?GPL|(?<!Lesser )General Public", re.IGNORECASE)


def config() -> configparser.ConfigParser:
    parsed = configparser.ConfigParser()
    parsed.read(ROOT / "setup.cfg", encoding="utf-8")
    return parsed


def requirements(text: str) -> list[Requirement]:
    lines = (line.strip() for line in text.splitlines())
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


def of_extra(name: str) -> list[Requirement]:
    """Return what an extra needs, those of the extras that it names included."""
    needs = requirements(config()["options.extras_require"][name])
    inner = [of_extra(extra) for n in needs if n.name == "mohsearch" for extra in n.extras]
    return [n for n in needs if n.name != "mohsearch"] + [n for part in inner for n in part]


def direct() -> list[Requirement]:
    return requirements(config()["options"]["install_requires"])


def licence(distribution: metadata.Distribution) -> str:
    """Return the licence as the package's own metadata says it."""
    said = distribution.metadata
    if expression := said.get("License-Expression"):
        return expression
    classified = [c for c in said.get_all("Classifier") or () if c.startswith("License ::")]
    named = [c.rsplit("::", 1)[-1] for c in classified if not c.endswith("OSI Approved")]
    if named:
        return "; ".join(named)
    text = said.get("License") or "unknown"  # some have the whole text here
    return "MIT" if "Permission is hereby granted, free of charge" in text else text.split("\n")[0]


def below(names: list[str]) -> dict[str, metadata.Distribution]:
    """Return the installed packages which those need, themselves included."""
    found: dict[str, metadata.Distribution] = {}
    todo = [canonicalize_name(name) for name in names]
    while todo:
        name = todo.pop()
        if name in found:
            continue
        found[name] = metadata.distribution(name)
        for text in found[name].requires or ():
            need = Requirement(text)
            if need.marker is None or need.marker.evaluate({"extra": ""}):
                todo.append(canonicalize_name(need.name))
    return found


def locked() -> dict[str, list[str]]:
    versions: dict[str, list[str]] = {}
    text = (ROOT / "requirements-dev.lock").read_text(encoding="utf-8")
    for name, version in re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", text, re.MULTILINE):
        versions.setdefault(canonicalize_name(name), []).append(version)
    return versions


@pytest.mark.parametrize("part", ["", "test", "dev"])
def test_the_lock_file_has_every_requirement_within_its_bounds(part: str) -> None:
    wanted = of_extra(part) if part else direct()
    versions = locked()
    for need in wanted:
        got = versions.get(canonicalize_name(need.name))
        assert got, f"{need.name}: not in requirements-dev.lock; renew it by `make lock`"
        for version in got:
            assert need.specifier.contains(version), f"{need}: locked at {version}"


def test_every_locked_package_has_its_hashes() -> None:
    text = (ROOT / "requirements-dev.lock").read_text(encoding="utf-8")
    for entry in re.split(r"\n(?=[A-Za-z0-9])", text):
        if "==" in entry.partition("\n")[0]:
            assert "--hash=sha256:" in entry, entry.partition("\n")[0]


def test_every_requirement_has_a_lower_bound() -> None:
    needs = [*direct()]
    for part in config()["options.extras_require"]:
        needs += of_extra(part)
    without = [str(n) for n in needs if not any(s.operator == ">=" for s in n.specifier)]
    assert without == []


def test_no_licence_is_unknown_or_reaches_the_program() -> None:
    faults = {}
    for name, distribution in below([n.name for n in direct()]).items():
        text = licence(distribution)
        program = OF_THE_PROGRAM.search(text) and not OF_THE_FILE_OR_LIBRARY.search(text)
        if program or not (PERMISSIVE.search(text) or OF_THE_FILE_OR_LIBRARY.search(text)):
            faults[name] = text
    assert faults == {}


def test_the_documented_licences_are_those_of_the_packages() -> None:
    page = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| ([\w.-]+) \|[^|]+\| ([^|]+) \|$", page, re.MULTILINE))
    names = {n.name: n for n in direct()}
    assert {canonicalize_name(n) for n in rows if n != "package"} == set(
        map(canonicalize_name, names)
    )
    for name, written in rows.items():
        if name == "package":
            continue
        family = re.match(r"Apache|Matplotlib|[A-Z]+", written)[0]
        said = licence(metadata.distribution(name))
        same = family in said or {
            "LGPL": "Lesser General Public" in said,
            "Matplotlib": "Python Software Foundation" in said,
        }.get(family, False)
        assert same, f"{name}: documented as {written}, says {said}"


@pytest.mark.parametrize(
    ("text", "program"),
    [("GPL-3.0-only", True), ("AGPL-3.0", True), ("GNU General Public License v2", True),
     ("MIT", False), ("LGPL-2.1-or-later", False),
     ("GNU Library or Lesser General Public License (LGPL)", False)],
)  # fmt: skip
def test_licences_are_told_apart(text: str, program: bool) -> None:
    found = OF_THE_PROGRAM.search(text) and not OF_THE_FILE_OR_LIBRARY.search(text)
    assert bool(found) is program
