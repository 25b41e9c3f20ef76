"""An extension of Griffe, which reads the Python package for the reference."""

import griffe


class Reference(griffe.Extension):
    """Shows functions as callers see them."""

    def on_package(self, *, pkg, **_):
        self._visit(pkg)

    def _visit(self, scope):
        for name, overloads in scope.overloads.items() if hasattr(scope, "overloads") else ():
            if name not in scope.members:  # of a stub, whose last overload has all kinds of arguments, and the text
                scope.set_member(name, overloads[-1])
        for member in list(scope.members.values()):
            if member.is_alias:
                continue
            if member.is_function:
                # Keywords that only answer mistakes.
                if "unknown" in member.parameters:
                    del member.parameters["unknown"]
            elif member.is_module or member.is_class:
                self._visit(member)
