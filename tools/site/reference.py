"""A Griffe extension that reads the Python package for the reference."""

import griffe


class Reference(griffe.Extension):
    """Shows functions with their public signatures."""

    def on_package(self, *, pkg, **_):
        self._visit(pkg)

    def _visit(self, scope):
        for name, overloads in scope.overloads.items() if hasattr(scope, "overloads") else ():
            if name not in scope.members:  # from a stub, whose last overload has all arguments and the text
                scope.set_member(name, overloads[-1])
        for member in list(scope.members.values()):
            if member.is_alias:
                continue
            if member.is_function:
                # Keywords that only serve error messages.
                if "unknown" in member.parameters:
                    del member.parameters["unknown"]
            elif member.is_module or member.is_class:
                self._visit(member)
