"""Reads enough of PromQL to say which series a query asks for.

A query is a string; what comes back are its selectors, each with its metric and matchers, and the
labels that it groups by. It checks no syntax: promtool does.
"""

import dataclasses
import re

TOKEN = re.compile(r"""
    (?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
  | (?P<range>\[[^\]]*\])
  | (?P<number>\d[\w.]*)
  | (?P<name>[A-Za-z_:][\w:]*)
  | (?P<sign>=~|!~|!=|==|>=|<=|[=><+\-*/%^(){},@])
  | (?P<space>\s+)
""", re.VERBOSE)
GROUPING = {"by", "without", "on", "ignoring", "group_left", "group_right"}
WORDS = {"and", "or", "unless", "offset", "bool"}


@dataclasses.dataclass
class Selector:
    metric: str
    matchers: list  # (label, operator, value)

    def values(self, label):
        """What the label has to be, where the query says it by =, or by =~ with | between."""
        for name, operator, value in self.matchers:
            if name == label and operator in ("=", "=~"):
                yield from [value] if operator == "=" else value.split("|")


@dataclasses.dataclass
class Query:
    selectors: list
    groupings: list  # of sets of labels

    @property
    def metrics(self):
        return {selector.metric for selector in self.selectors}

    @property
    def grouped_by(self):
        return set().union(*self.groupings)


def tokens_of(text):
    tokens, at = [], 0
    while at < len(text):
        match = TOKEN.match(text, at)
        if not match:
            raise ValueError(f"no PromQL from column {at + 1} on: {text}")
        at = match.end()
        if match.lastgroup != "space":
            tokens.append((match.lastgroup, match.group()))
    return tokens + [("end", "")]


def inside(tokens, at, closing):
    """Tokens from the bracket at `at` to `closing`, and the index behind that."""
    end = next(i for i in range(at, len(tokens)) if tokens[i][1] == closing)
    return tokens[at + 1:end], end + 1


def matchers_of(tokens):
    found = []
    for i in range(0, len(tokens) - 2):
        if tokens[i][0] == "name" and tokens[i + 2][0] == "string":
            found.append((tokens[i][1], tokens[i + 1][1], tokens[i + 2][1][1:-1]))
    return found


def parse(text):
    tokens, at = tokens_of(text), 0
    query = Query([], [])
    while tokens[at][0] != "end":
        kind, word = tokens[at]
        at += 1
        if kind != "name" or word in WORDS:
            continue
        following = tokens[at][1]
        if word in GROUPING:
            if following == "(":
                labels, at = inside(tokens, at, ")")
                query.groupings.append({text for kind, text in labels if kind == "name"})
        elif following == "{":
            matchers, at = inside(tokens, at, "}")
            query.selectors.append(Selector(word, matchers_of(matchers)))
        elif following != "(" and following not in GROUPING:
            query.selectors.append(Selector(word, []))
    return query
