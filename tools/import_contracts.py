"""The import-linter contract type behind `[tool.importlinter]`: an allow-list per folder.

The contract types of import-linter list what is forbidden, and fail on modules that do not exist yet. This one lists what is
allowed, as the table of CONTRIBUTING.md does, and so also finds a folder that has no line yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from importlinter import Contract, ContractCheck, fields, output

if TYPE_CHECKING:
    from collections.abc import Iterator

    from grimp import ImportGraph


class AllowedImports(Contract):
    """Checks every direct import between the top-level folders of the root package, including type-checking imports."""

    type_name = "allowed_imports"

    everywhere = fields.SetField(subfield=fields.StringField())
    allow = fields.ListField(subfield=fields.StringField())
    confine = fields.ListField(subfield=fields.StringField(), required=False, default=[])

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        faults = sorted(set(self._faults(graph)))
        return ContractCheck(kept=not faults, metadata={"faults": faults})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for fault in check.metadata["faults"]:
            output.print_error(fault, bold=False)

    def _faults(self, graph: ImportGraph) -> Iterator[str]:
        root: str = self.session_options["root_packages"][0]
        allowed = {folder: self._parse(names) for folder, names in map(_split, cast(list[str], self.allow))}
        confined = dict(map(_split, cast(list[str], self.confine)))
        for importer in graph.modules:
            folder = _folder(importer, root)
            if folder is None:  # external, or the root package itself, which re-exports the public names
                continue
            permitted = allowed.get(folder, frozenset())
            for imported in graph.find_modules_directly_imported_by(importer):
                if imported.partition(".")[0] == root:
                    target = _folder(imported, root)
                    legal = permitted is None or target == folder or target in permitted
                else:
                    legal = confined.get(imported, folder) == folder
                if not legal:
                    yield f"{importer} may not import {imported}"

    def _parse(self, names: str) -> frozenset[str] | None:
        """The folders that a right-hand side allows; None allows all."""
        match names.split(maxsplit=1):
            case ["anything"]:
                return None
            case ["nothing"]:
                return frozenset()
            case ["only", rest]:
                return _names(rest)
            case _:
                return _names(names) | cast(set[str], self.everywhere) | {"domain"}


def _split(line: str) -> tuple[str, str]:
    left, _, right = line.partition("->")
    return left.strip(), right.strip()


def _names(listed: str) -> frozenset[str]:
    return frozenset(name.strip() for name in listed.split(",") if name.strip())


def _folder(module: str, root: str) -> str | None:
    """`sexton.store.work.runs` belongs to the folder `store`; a module outside the root package belongs to none."""
    package, _, path = module.partition(".")
    return path.partition(".")[0] or None if package == root else None
