"""Reference smoothing methods over dictionaries, computed directly from their formulas.

Slow, and independent of the code under test.
"""

from collections import Counter, defaultdict

Gram = tuple[int, ...]


class Specification:
    """p(w | h) of an n-gram model of some lines; `<s>` is −1."""

    def __init__(self, lines: list[list[int]], order: int, method: str, words: list[int], **options: float) -> None:
        self.order, self.method, self.words, self.options = order, method, words, options
        self.raw: dict[int, Counter[Gram]] = {k: Counter() for k in range(1, order + 1)}
        for line in lines:
            text = [-1, *line]
            for end in range(1, len(text)):
                for k in range(1, order + 1):
                    if end - k + 1 >= 0:
                        self.raw[k][tuple(text[end - k + 1 : end + 1])] += 1
        self.count = {k: self._counts(k) for k in self.raw}
        self.followers: dict[Gram, list[int]] = defaultdict(list)
        for k in self.count:
            for gram in self.count[k]:
                self.followers[gram[:-1]].append(gram[-1])

    def _counts(self, k: int) -> Counter[Gram]:
        if "kneser-ney" not in self.method or k == self.order:
            return self.raw[k]
        before: dict[Gram, set[int]] = defaultdict(set)
        for gram in self.raw[k + 1]:
            before[gram[1:]].add(gram[0])
        return Counter({g: c if g[0] == -1 else len(before[g]) for g, c in self.raw[k].items()})

    def total(self, h: Gram) -> int:
        """c(h)."""
        return sum(self.count[len(h) + 1][(*h, w)] for w in self.followers[h])

    def p(self, h: Gram, w: int) -> float:
        """p(w | h); h is truncated to the order and to the last `<s>`."""
        h = h[len(h) - self.order + 1 :] if self.order > 1 and len(h) > self.order - 1 else h
        h = h if self.order > 1 else ()
        if -1 in h:
            h = h[len(h) - 1 - h[::-1].index(-1) :]
        if self.method in ("laplace", "add-k"):
            k = 1.0 if self.method == "laplace" else self.options["k"]
            c = self.raw[len(h) + 1][(*h, w)]
            return (c + k) / (self.total(h) + k * len(self.words))
        return self._p(h, w)

    def _p(self, h: Gram, w: int) -> float:
        total = self.total(h)
        c = self.count[len(h) + 1][(*h, w)]
        if self.method == "stupid-backoff":
            if c:
                return c / total
            return self.options["backoff"] * self._p(h[1:], w) if h else 0.0
        if not total:
            return self._p(h[1:], w) if h else 1 / len(self.words)
        if self.method == "mle":
            return c / total
        if self.method == "katz":
            return self._katz(h, w)
        shares = {v: self._share(h, v) for v in self.followers[h]}
        shorter = self._p(h[1:], w) if h else 1 / len(self.words)
        return shares.get(w, 0.0) + (1 - sum(shares.values())) * shorter

    def _share(self, h: Gram, w: int) -> float:
        c, total = self.count[len(h) + 1][(*h, w)], self.total(h)
        if self.method == "witten-bell":
            return c / (total + len(self.followers[h]))
        if self.method == "modified-kneser-ney":
            return (c - self._modified(len(h) + 1)[min(c, 3)]) / total
        return max(c - self._discount(len(h) + 1), 0) / total

    def n(self, k: int, r: int) -> int:
        """Number of k-grams with count r."""
        return sum(c == r for c in self.count[k].values())

    def _discount(self, k: int) -> float:
        n1, n2 = self.n(k, 1), self.n(k, 2)
        return n1 / (n1 + 2 * n2) if n1 and n2 else 0.5

    def _modified(self, k: int) -> tuple[float, ...]:
        n = [self.n(k, r) for r in range(5)]
        if 0 in n[1:]:
            return 0.0, 0.5, 1.0, 1.5
        Y = n[1] / (n[1] + 2 * n[2])
        D = [r - (r + 1) * Y * n[r + 1] / n[r] for r in (1, 2, 3)]
        return (0.0, *D) if all(0 <= d <= r for d, r in zip(D, (1, 2, 3), strict=True)) else (0.0, 0.5, 1.0, 1.5)

    def _ratio(self, k: int, c: int) -> float:
        n1, n6 = self.n(k, 1), self.n(k, 6)
        if c > 5 or not n1 or 6 * n6 >= n1 or not self.n(k, c):
            return 1.0
        star = (c + 1) * self.n(k, c + 1) / self.n(k, c)
        A = 6 * n6 / n1
        d = (star / c - A) / (1 - A)
        return d if star < c and 0 < d < 1 else 1.0

    def _katz(self, h: Gram, w: int) -> float:
        k = len(h) + 1
        discounted = {v: self._ratio(k, self.count[k][(*h, v)]) * self.count[k][(*h, v)] for v in self.followers[h]}
        total = self.total(h) + (abs(sum(discounted.values()) - self.total(h)) < 1e-9)
        p = {v: value / total for v, value in discounted.items()}
        left_over = 1 - sum(p.values())
        unseen = [v for v in self.words if v not in p]
        if not h:
            heirs = unseen or self.words
            return p.get(w, 0.0) + left_over / len(heirs) * (w in heirs)
        if not unseen:
            return p[w] / sum(p.values())
        if w in p:
            return p[w]
        return left_over * self._p(h[1:], w) / sum(self._p(h[1:], v) for v in unseen)


def contexts(lines: list[list[int]]) -> set[Gram]:
    """All prefixes of every line and of every reversed line, most of which are unseen."""
    both = [[-1, *line] for line in lines] + [[-1, *reversed(line)] for line in lines]
    return {tuple(line[:end]) for line in both for end in range(1, len(line) + 1)}
