"""Two sides and the scripts they play, one after the other."""

from contextlib import ExitStack

from conformance.target import Workspace

from twin import report
from twin.pair import Pair
from twin.shrink import shrink
from twin.sides import Side


class Session:
    """Two controllers in a folder; they are stopped at its end.

    kinds: kafka or kraftcore, left and right; mutation: a fault of the right side, by its name in twin.proxy.
    """

    def __init__(self, folder, kafka, kinds=("kafka", "kraftcore"), properties=(), mutation=None):
        self.kinds = kinds
        self.names = kinds if kinds[0] != kinds[1] else ("left", "right")
        with ExitStack() as opened:
            sides = []
            for name, kind in zip(("left", "right"), kinds, strict=True):
                (folder / name).mkdir(parents=True)
                workspace = opened.enter_context(Workspace(kind, folder / name, kafka if kind == "kafka" else None))
                sides.append(Side(name, workspace, properties, mutation if name == "right" else None))
                opened.callback(sides[-1].close)
            self.left, self.right = sides
            self.opened = opened.pop_all()

    def run(self, script, stop=None, progress=None):
        """All differences, or those up to the first with stop(difference), and how they were found."""
        pair = Pair(self.left, self.right)
        return pair.run(script, stop, progress), pair

    def smallest(self, script, sign, say=lambda text: None, tries=400):
        """The shortest script found that still shows a difference, and that difference.

        None, None if it does not again.
        """
        small, found = shrink(script, sign, lambda s, stop: self.run(s, stop)[0], say, tries)
        return small, small and next(d for d in found if d.sign == sign)

    def explain(self, script, difference):
        """Text for people."""
        return report.difference(difference, script, self.names)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.opened.close()
