"""What one client saw of one streamed answer, and whether it may have been so.

A History is written by stream_clients.py, in the words of no door: the same rules hold for a TGI
stream, an OpenAI stream and a gRPC one. `faults` names everything that is wrong with a history;
`require` fails a test with it. Nothing here knows a server or a clock, so that the rules themselves
are tested (test_stream_history.py) with histories that are wrong in each way.
"""

import dataclasses

# Kinds of events. A whole history is, in this order: HEAD at most once, any number of TOKENs, TEXT
# at most once, FINISH or ERROR, USAGE at most once, DONE where the door has one.
HEAD = "head"      # what is known before the first token
TOKEN = "token"    # one token, with the text that became certain with it
TEXT = "text"      # text that had been held back, without a token
FINISH = "finish"  # terminal: the answer is complete
ERROR = "error"    # terminal: the request failed
USAGE = "usage"    # the server's counts
DONE = "done"      # the door's mark that nothing follows
STRANGE = "strange"  # what the door's format does not know
PLACES = {HEAD: 0, TOKEN: 1, TEXT: 2, FINISH: 3, ERROR: 3, USAGE: 4, DONE: 5}

# How a stream ended, as its client saw it. SILENT: it was still open when its client gave it up.
CLEAN, BROKEN, LEFT, SILENT = "clean", "broken", "left by its client", "silent"

# Why an answer is complete. Each door has its own words; a door that says another one is at fault.
LENGTH, STOP = "length", "stop"

# What a test expects of a stream.
WHOLE = "whole"  # it finished
FAILED = "failed"  # one error event ended it
CUT = "cut"      # the server went away: the connection broke, and no event pretends an end
HUNG_UP = "hung up"  # the client went away

# Faults, by name.
ORDER, LOST, REPEATED = "order of events", "token lost", "token repeated"
REORDERED, END, AFTER_END = "tokens reordered", "terminal event", "after the end"
COUNTS, WORDS, DIFFERS = "usage", "text", "unlike the undisturbed run"
CONNECTION, FORM = "connection", "form"


@dataclasses.dataclass(slots=True)
class Event:
    kind: str
    # time.time() of its arrival.
    at: float = 0.0
    # TOKEN: its number as the server counts, from 1; None where the door does not say.
    number: int | None = None
    id: int | None = None
    # TOKEN: the token's own bytes; None where the door does not say.
    piece: bytes | None = None
    text: str = ""
    # FINISH: LENGTH or STOP. ERROR: what was said. STRANGE: what came.
    reason: str = ""
    # What the event says of these.
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    # FINISH: the whole answer, where the door repeats it.
    whole_text: str | None = None


@dataclasses.dataclass
class History:
    """Of one stream. Its reader appends; others may read while it does."""
    door: str
    # The mark that the door ends with: a stream without it is not whole; no other door sends it.
    wants_done: bool = True
    # The door says what is known before the first token.
    wants_head: bool = False
    # The door says how many tokens there were.
    wants_usage: bool = True
    # FINISH may stand for one more token, of which the door shows nothing.
    finish_may_be_a_token: bool = False
    events: list = dataclasses.field(default_factory=list)
    # Tokens that were added.
    count: int = 0
    # CLEAN, BROKEN or LEFT; None while it is open.
    closed: str | None = None
    # How the connection ended, in the client library's words.
    why: str = ""

    def add(self, kind, **fields):
        self.events.append(Event(kind, **fields))
        self.count += kind == TOKEN

    def of(self, *kinds):
        return [event for event in list(self.events) if event.kind in kinds]

    def tokens(self):
        return self.of(TOKEN)

    def ids(self):
        """Ids of all tokens; None where the door does not say."""
        return self.all("id")

    def pieces(self):
        """The bytes of each token; None where the door does not say."""
        return self.all("piece")

    def all(self, field):
        values = [getattr(event, field) for event in self.tokens()]
        return None if None in values or self.finish_may_be_a_token else values

    def text(self):
        return "".join(event.text for event in self.of(TOKEN, TEXT))

    def counted(self, field):
        """The last word of the server about one of its counts."""
        values = [value for value in (getattr(event, field) for event in list(self.events))
                  if value is not None]
        return values[-1] if values else None

    def finished(self):
        return bool(self.of(FINISH))


def sequence_faults(seen, wanted, whole=True):
    """Names how a list of ids (or bytes) differs from the one that was to come, of which it is the
    beginning unless `whole`; "" when it does not."""
    def goes_on(left, right):
        # A part that ends here would go on as anything.
        shared = min(len(left), len(right))
        return left == right if whole else shared > 0 and left[:shared] == right[:shared]

    if seen == (wanted if whole else wanted[:len(seen)]):
        return ""
    at = next((index for index, pair in enumerate(zip(seen, wanted)) if pair[0] != pair[1]),
              min(len(seen), len(wanted)))
    place = f"at token {at + 1} of {len(wanted)}"
    for gap in range(1, max(len(seen), len(wanted)) - at + 1):
        count = "" if gap == 1 else f"{gap} "
        if at + gap <= len(wanted) and goes_on(seen[at:], wanted[at + gap:]):
            return f"{LOST}: {count}{place}"
        if at + gap <= len(seen) and goes_on(seen[at + gap:], wanted[at:]):
            return f"{REPEATED}: {count}{place}"
    if sorted(seen) == sorted(wanted if whole else wanted[:len(seen)]):
        return f"{REORDERED}: {place}"
    return f"{DIFFERS}: {place}: {seen[at:at + 3]}, expected {wanted[at:at + 3]}"


def number_faults(tokens):
    """The server's own numbers of the tokens: 1, 2, 3, each once."""
    numbers = [token.number for token in tokens]
    if None in numbers:
        return [] if not any(numbers) else [f"{FORM}: tokens with a number and without"]
    found, seen = [], set()
    for number in numbers:
        if number in seen:
            found.append(f"{REPEATED}: number {number}")
        elif seen and number < max(seen):
            found.append(f"{REORDERED}: number {number} after {max(seen)}")
        seen.add(number)
    missing = sorted(set(range(1, max(seen, default=0) + 1)) - seen)
    if missing:
        found.append(f"{LOST}: number {missing[0]}" + (" and more" if len(missing) > 1 else ""))
    return found


def order_faults(history):
    """Events in the order of PLACES, one terminal event, and nothing after the end."""
    found = [f"{FORM}: {event.reason}" for event in history.of(STRANGE)]
    found += [f"{FORM}: it ended by {event.reason!r}" for event in history.of(FINISH)
              if event.reason not in (LENGTH, STOP)]
    if history.wants_head and history.of(TOKEN, FINISH) and not history.of(HEAD):
        found.append(f"{ORDER}: no {HEAD}")
    if history.of(DONE) and not history.wants_done:
        found.append(f"{FORM}: {DONE}, which this door does not say")
    ended, before = None, None
    for event in history.events:
        if event.kind == STRANGE:
            continue
        if ended and (event.kind in (HEAD, TOKEN, TEXT) or ended == DONE):
            found.append(f"{AFTER_END}: {event.kind} after {ended}")
        elif ended and event.kind in (FINISH, ERROR):
            found.append(f"{END}: {event.kind} after {ended}")
        elif before and PLACES[event.kind] < PLACES[before]:
            found.append(f"{ORDER}: {event.kind} after {before}")
        elif before == event.kind and event.kind != TOKEN:
            found.append(f"{ORDER}: {event.kind} twice")
        if event.kind in (FINISH, ERROR, DONE):
            ended = event.kind
        before = event.kind
    return found


def end_faults(history, end):
    """The end that the test expects, and no other."""
    finishes, errors, done = history.of(FINISH), history.of(ERROR), history.of(DONE)
    found = []
    if end in (WHOLE, FAILED):
        wanted, other = (finishes, errors) if end == WHOLE else (errors, finishes)
        if not wanted:
            said = other[0].reason if other else history.why or "the stream just ended"
            found.append(f"{END}: none of kind {FINISH if end == WHOLE else ERROR}: {said}")
        if history.wants_done and not done:
            found.append(f"{END}: no mark that nothing follows")
        if history.closed != CLEAN:
            found.append(f"{CONNECTION}: {history.closed} ({history.why})")
    elif end == CUT:
        ends = history.of(FINISH, ERROR, USAGE, DONE)
        if ends:
            found.append(f"{END}: {ends[0].kind} in a stream that was cut")
        if history.closed != BROKEN:
            found.append(f"{CONNECTION}: {history.closed} ({history.why}), not broken")
    else:
        if errors:
            found.append(f"{END}: {ERROR} in a stream that its client left: {errors[0].reason}")
        if history.closed != LEFT:
            found.append(f"{CONNECTION}: {history.closed} ({history.why}), not left")
    return found


def count_faults(history, max_tokens):
    """The server's counts are those that the client makes."""
    found, tokens = [], len(history.tokens())
    said = history.counted("output_tokens")
    if said is None:
        if history.wants_usage and history.finished():
            found.append(f"{COUNTS}: none")
    elif said != tokens and not (history.finish_may_be_a_token and said == tokens + 1):
        found.append(f"{COUNTS}: {said} tokens, but {tokens} came")
    prompts = {event.prompt_tokens for event in history.events} - {None}
    cached = {event.cached_tokens for event in history.events} - {None}
    for what, counts in (("prompt", prompts), ("cached", cached)):
        if len(counts) > 1:
            found.append(f"{COUNTS}: {what} tokens {sorted(counts)}")
    if prompts and max(cached, default=0) >= max(prompts):
        found.append(f"{COUNTS}: a whole prompt from the cache")
    seen = said if history.finish_may_be_a_token and said is not None else tokens
    if history.finished() and history.wants_usage and not prompts:
        found.append(f"{COUNTS}: no prompt tokens")
    if history.finished() and seen == 0:
        found.append(f"{COUNTS}: an answer of no token")
    if max_tokens is not None:
        reason = next((event.reason for event in history.of(FINISH)), "")
        if seen > max_tokens or (reason == LENGTH and seen != max_tokens):
            found.append(f"{COUNTS}: {seen} tokens of {max_tokens}, finished by {reason}")
    return found


def is_held_back(rest, stops):
    """Before its end a stream holds back what may be a part of a character or of a stop string."""
    rest = rest.rstrip("\ufffd")
    return not rest or any(stop.startswith(rest) for stop in stops)


def stop_faults(texts, stops):
    """The token that completes a stop string is the last one, and shows nothing of it. `texts`:
    that which was shown, and that of all tokens but the last."""
    return [f"{WORDS}: it goes on behind the stop string {stop!r}: {text!r}"
            for stop in stops for text in texts if stop in text]


def text_faults(history, detokenize, stops, ends_itself):
    """The text is that of the ids (or bytes), up to a stop string; the door's own copy is equal."""
    found, text = [], history.text()
    for event in history.of(FINISH):
        if event.whole_text is not None and event.whole_text != text:
            found.append(f"{WORDS}: the whole is {event.whole_text!r}, the parts are {text!r}")
    ids, pieces = history.ids(), history.pieces()
    stopped = any(event.reason == STOP for event in history.of(FINISH))
    if ids is not None and detokenize is not None:
        def text_of(count):
            return detokenize(ids[:count]) if ids[:count] else ""
    elif pieces is not None:
        def text_of(count):
            return b"".join(pieces[:count]).decode(errors="replace")
    else:
        return found + stop_faults([text], stops)
    count = len(history.tokens())
    whole = text_of(count)
    # The last token of an answer that the model ended is a control token, whose bytes are no text.
    if stopped and not stops and ids is None and text != whole:
        whole = text_of(count - 1)
    rest = whole[len(text):] if whole.startswith(text) else None
    if rest is None:
        good = False
    elif not history.finished():
        good = is_held_back(rest, stops)
    else:
        good = (rest == "" and (ends_itself or not stopped)) or (
            stopped and any(rest.startswith(stop) for stop in stops))
    if not good:
        found.append(f"{WORDS}: {text!r}, its tokens are {whole!r}")
    return found + (stop_faults([text, text_of(max(count - 1, 0))], stops) if stops else [])


def text_shown(history, tokens):
    """The text that had come with so many tokens. Tokens of one message come with one text: those
    that came with others that are not counted give none."""
    events = history.tokens()
    while 0 < tokens < len(events) and events[tokens - 1].at == events[tokens].at:
        tokens -= 1
    return "".join(event.text for event in events[:tokens])


def difference_faults(history, undisturbed, same_length=True):
    """Tokens and text are those of the undisturbed run; of a part, the first ones. Without
    `same_length` the two were allowed different numbers of tokens, and the shorter one is the
    beginning of the other."""
    found, whole = [], history.finished() and same_length
    for name in ("ids", "pieces"):
        seen, wanted = getattr(history, name)(), getattr(undisturbed, name)()
        if seen is not None and wanted is not None:
            seen = seen if same_length else seen[:len(wanted)]
            found += filter(None, [sequence_faults(seen, wanted, whole)])
    seen, wanted = history.counted("output_tokens"), undisturbed.counted("output_tokens")
    if whole and None not in (seen, wanted) and seen != wanted:
        found.append(f"{DIFFERS}: {seen} tokens, expected {wanted}")
    seen, wanted = history.counted("prompt_tokens"), undisturbed.counted("prompt_tokens")
    if None not in (seen, wanted) and seen != wanted:
        found.append(f"{DIFFERS}: {seen} prompt tokens, expected {wanted}")
    ends = [event.reason for one in (history, undisturbed) for event in one.of(FINISH)]
    if whole and len(set(ends)) > 1:
        found.append(f"{DIFFERS}: finished by {ends[0]}, expected {ends[1]}")
    seen, wanted = history.text(), undisturbed.text()
    known = history.ids() is not None or history.pieces() is not None
    shown = text_shown(undisturbed, len(history.tokens())) if known else ""
    if len(seen) < len(shown):
        found.append(f"{DIFFERS}: text {seen!r}, where {shown!r} had come with as many tokens")
    if not same_length:
        # A part of a character at an end may go on in the other.
        seen, wanted = seen.rstrip("\ufffd"), wanted.rstrip("\ufffd")
        seen = seen[:len(wanted)]
    if seen != wanted if whole else not wanted.startswith(seen):
        found.append(f"{DIFFERS}: text {seen!r}, expected {wanted!r}")
    return found


def faults(history, *, end=WHOLE, max_tokens=None, stops=(), ends_itself=True, detokenize=None,
           undisturbed=None, same_length=True):
    """Everything that is wrong with a stream, each beginning with its name above.

    `detokenize(ids)` is the text of a list of ids; `undisturbed` the History of the same request
    without any fault, where rows do not depend on their neighbours (num.row) and it was greedy or
    seeded. Without `ends_itself` the request goes on behind the model's own end of the text."""
    found = order_faults(history) + end_faults(history, end) + number_faults(history.tokens())
    found += count_faults(history, max_tokens)
    found += text_faults(history, detokenize, stops, ends_itself)
    if not stops and not ends_itself and any(event.reason == STOP for event in history.of(FINISH)):
        found.append(f"{END}: it stopped, and nothing was to stop it")
    if undisturbed is not None:
        found += difference_faults(history, undisturbed, same_length)
    return found


def require(history, about="", **arguments):
    """Fails with all faults of a history."""
    found = faults(history, **arguments)
    if found:
        raise AssertionError(f"{about or 'a stream'} ({history.door}): " + "; ".join(found))
