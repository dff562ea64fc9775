"""What must not get into a record: people are replaced by placeholders, secrets make a text refused.

A text is refused rather than repaired where it holds what looks like a key or a password: whoever finds one there has to
change it anyway, and a pattern that cut out half of it would do harm in silence. Only comments and strings are searched for
what is merely doubtful, because code is full of words like `token` and of long numbers.
"""

import re
from collections.abc import Iterator, Sequence

from dice_lsp.source.tokens import Kind, lex

MAX_CHARACTERS = 200_000
"""Of one record's texts: a longer file is not an example that a model could be shown."""

_KNOWN: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (what, re.compile(pattern))
    for what, pattern in (
        ("a private key", r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY"),
        ("a key of AWS", r"\b(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}\b"),
        ("a token of GitHub", r"\bgh[opsur]_[0-9A-Za-z]{30,}|\bgithub_pat_[0-9A-Za-z_]{40,}"),
        ("a token of GitLab", r"\bgl(?:pat|dt|rt|oas|ptt)-[0-9A-Za-z_-]{18,}"),
        ("a token of Hugging Face", r"\b(?:hf|api_org)_[0-9A-Za-z]{28,}\b"),
        ("a token of Slack", r"\bxox[abeoprs]-[0-9A-Za-z-]{10,}"),
        ("a key of Google", r"\bAIza[0-9A-Za-z_-]{35}"),
        ("a key of an API", r"\b[sr]k[-_](?:[a-z0-9]+[-_])*[0-9A-Za-z]{20,}"),
        ("a token of PyPI", r"\bpypi-[0-9A-Za-z_-]{40,}"),
        ("a token of npm", r"\bnpm_[0-9A-Za-z]{30,}\b"),
        ("a token of NGC", r"\bnvapi-[0-9A-Za-z_-]{40,}"),
        ("a signed token", r"\beyJ[0-9A-Za-z_-]{10,}\.eyJ[0-9A-Za-z_-]{10,}"),
        ("an address with a password", r"\b[a-z][a-z0-9+.-]*://[^\s/@:\"']+:[^\s/@\"']+@"),
    )
)
_SAID = re.compile(
    r"(?i)(?:pass(?:word|wd|phrase)|secret|(?:api|access|auth|private)[ _-]?(?:key|token)|\btoken|credentials?)[\"']?\s*(?::|=|\bis\b)\s*"
    r"[\"']?(?=[^\s\"']*\d)(?=[^\s\"']*[A-Za-z])([^\s\"',;]{8,})"
)
"""`password = hunter22x`: a value with letters and digits behind a word that announces one."""
_WORD = re.compile(r"[A-Za-z0-9+]{20,}")
_HEXADECIMAL = re.compile(r"[0-9a-fA-F]{32,}")
_OPEN_HASH = re.compile(r"(?i)(?:commit|rev(?:ision)?|sha-?\d*|md5|hash|checksum|tree|blob)\W{0,12}$")
"""Before a hash that is no secret."""

_EMAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_HOME = re.compile(r"(?P<root>/home/|/Users/|\b[A-Za-z]:(?:\\\\?|/)Users(?:\\\\?|/))(?P<user>[^\s/\\\"'<>:;,)]+)")
_DIRECTIVE = re.compile(r"(?:#|%:|\?\?=)[ \t]*(?P<name>\w*)")
_AUTHOR = re.compile(
    r"(?i)(?P<said>@authors?\b[ \t]*:?[ \t]*|\b(?:authors?|maintainers?|contact)[ \t]*:[ \t]*)(?P<who>[^\r\n<(*]+)"
)


def scrubbed(pieces: Sequence[str]) -> tuple[str, ...] | str:
    """The pieces of one CUDA text with people taken out of its comments and strings; or why it is refused.

    E-mail addresses become `<email>`, names behind `author:` become `<name>`, and a home folder's user becomes `user`.
    The reason is the rest of a sentence that begins with what the text is, such as "holds a token of GitHub in line 3".
    """
    text = "".join(pieces)
    changes: list[tuple[int, int, str]] = []
    refused = _known_shape(text)
    for start, end, is_include in _zones(text) if refused is None else ():
        if is_include and _HOME.search(text, start, end):
            refused = f"includes something from a home folder in {_line(text, start)}"
        elif not is_include:
            refused = _doubtful(text, start, end)
            changes += ((start + at, start + stop, new) for at, stop, new in _people(text[start:end]))
        if refused is not None:
            break
    return refused if refused is not None else _changed(pieces, changes)


def scrubbed_prose(pieces: Sequence[str]) -> tuple[str, ...] | str:
    """The same for a text that is not CUDA, such as a prompt or a Python file, all of which is searched."""
    text = "".join(pieces)
    refused = _known_shape(text)
    if refused is None and (said := _SAID.search(text)) is not None and text[said.start(1) - 1] in "\"'":
        refused = f"seems to hold a password in {_line(text, said.start())}"
    return refused if refused is not None else _changed(pieces, list(_people(text)))


def _zones(text: str) -> Iterator[tuple[int, int, bool]]:
    """Start and end of each comment and string, and of each name that is included, which says so."""
    for token in lex(text):
        if token.kind is Kind.DIRECTIVE:
            word = _DIRECTIVE.match(text, token.start, token.end)
            start = token.start if word is None else word.end()
            for part in lex(text, start, token.end):
                included = word is not None and word["name"].startswith("include") and part.kind is not Kind.COMMENT
                if included:
                    # `<...>` is many tokens: all up to a comment is looked at as one.
                    yield start, part.end, True
                elif part.kind in (Kind.COMMENT, Kind.STRING):
                    yield part.start, part.end, False
        elif token.kind in (Kind.COMMENT, Kind.STRING):
            yield token.start, token.end, False


def _known_shape(text: str) -> str | None:
    if len(text) > MAX_CHARACTERS:
        return f"has {len(text)} characters, and a record has at most {MAX_CHARACTERS}"
    for what, pattern in _KNOWN:
        if (found := pattern.search(text)) is not None:
            return f"holds {what} in {_line(text, found.start())}"
    return None


def _doubtful(text: str, start: int, end: int) -> str | None:
    """Why a comment or a string may hold a secret."""
    if (said := _SAID.search(text, start, end)) is not None:
        return f"seems to hold a password in {_line(text, said.start())}"
    for found in _HEXADECIMAL.finditer(text, start, end):
        word = found.group()
        varied = len(set(word.lower())) > 6 and re.search(r"\d", word) and re.search(r"[a-fA-F]", word)
        if varied and not _OPEN_HASH.search(text[max(start, found.start() - 24) : found.start()]):
            return f"seems to hold a key in {_line(text, found.start())}"
    for found in _WORD.finditer(text, start, end):
        if _is_random(found.group()) and not _HEXADECIMAL.fullmatch(found.group()):
            return f"seems to hold a key in {_line(text, found.start())}"
    return None


def _is_random(word: str) -> bool:
    """Letters of both cases and digits, so mixed that no name of code looks like it."""
    digit_groups = len(re.findall(r"\d+", word))
    return digit_groups >= 2 and all(len(re.findall(kind, word)) >= 3 for kind in (r"\d", "[a-z]", "[A-Z]"))


def _people(words: str) -> Iterator[tuple[int, int, str]]:
    """Start, end and replacement of what names a person."""
    taken: list[tuple[int, int]] = []
    for found in _EMAIL.finditer(words):
        taken.append(found.span())
        yield *found.span(), "<email>"
    for found in _HOME.finditer(words):
        if found["user"] != "user":
            yield *found.span("user"), "user"
    for found in _AUTHOR.finditer(words):
        start, end = found.span("who")
        end = min((first for first, _ in taken if start <= first < end), default=end)
        name = words[start:end].rstrip()
        if name.strip():
            yield start, start + len(name), "<name>"


def _changed(pieces: Sequence[str], changes: list[tuple[int, int, str]]) -> tuple[str, ...] | str:
    borders, at = [], 0
    for piece in pieces:
        borders.append((at, at + len(piece)))
        at += len(piece)
    done = list(pieces)
    for start, end, new in sorted(changes, reverse=True):
        place = next((n for n, (first, last) in enumerate(borders) if first <= start and end <= last), None)
        if place is None:
            return "names a person across the edge of the fill"
        offset = borders[place][0]
        done[place] = done[place][: start - offset] + new + done[place][end - offset :]
    return tuple(done)


def _line(text: str, at: int) -> str:
    return f"line {text.count(chr(10), 0, at) + 1}"
