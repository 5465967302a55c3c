"""Documentation site: `make docs` builds it; every warning is an error.

The reference has one page a package, written here before the build: a page a module would be some
300, and the theme resolves the whole table of contents again for every page.
"""

import pkgutil
from pathlib import Path

from sphinx import addnodes
from sphinx.transforms.post_transforms import SphinxPostTransform

import mohsearch
from mohsearch import __version__

project = "mohsearch"
author = "the mohsearch authors"
copyright = author
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}

html_theme = "furo"
html_title = f"mohsearch {version}"
html_show_sphinx = False
html_copy_source = False

myst_heading_anchors = 3
myst_links_external_new_tab = False

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


def package_page(package, modules):
    """One page: the package itself, then its public modules in order."""
    lines = [package, "=" * len(package), "", f".. automodule:: {package}", ""]
    for module in modules:
        lines += [module, "-" * len(module), "", f".. automodule:: {module}", ""]
    return "\n".join(lines)


def write_reference(app):
    """Write ``_reference/<package>.rst`` for every package of mohsearch, and remove stale pages."""
    found = list(pkgutil.walk_packages(mohsearch.__path__, "mohsearch."))
    packages = {info.name: [] for info in found if info.ispkg}
    for info in found:
        room, _, name = info.name.rpartition(".")
        if not info.ispkg and not name.startswith("_") and room in packages:
            packages[room].append(info.name)
    pages = {"mohsearch.api": [], **packages}
    folder = Path(app.srcdir) / "_reference"
    folder.mkdir(exist_ok=True)
    for stale in folder.glob("*.rst"):
        if stale.stem not in pages:
            stale.unlink()
    for package, modules in pages.items():
        path, text = folder / f"{package}.rst", package_page(package, modules)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


class PlainShapes(SphinxPostTransform):
    """Lengths in types, such as ``(n, devices)``, are no links to attributes of the same name."""

    default_priority = 5  # before references are resolved

    def run(self, **kwargs):
        """Leave the text of such a reference and drop the reference."""
        for node in list(self.document.findall(addnodes.pending_xref)):
            target = node.get("reftarget", "")
            if (
                node.get("refdomain") == "py"
                and node.get("reftype") == "class"
                and "." not in target
                and target.islower()
            ):
                node.replace_self(node.children)


def setup(app):
    """Sphinx calls this before it reads pages."""
    app.add_post_transform(PlainShapes)
    app.connect("builder-inited", write_reference)
