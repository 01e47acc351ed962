"""Two hundred questions with four answers each, of which one is right: made by a seed, for
log-likelihoods (lm-eval's multiple choice). Short things that a small model half knows, so that an
accuracy says something."""

import random

COUNT = 200
CHOICES = 4
SEED = 20261123

CAPITALS = {
    "France": "Paris", "Italy": "Rome", "Spain": "Madrid", "Germany": "Berlin", "Japan": "Tokyo",
    "China": "Beijing", "Russia": "Moscow", "Egypt": "Cairo", "Greece": "Athens", "Poland":
    "Warsaw", "Austria": "Vienna", "Hungary": "Budapest", "Portugal": "Lisbon", "Norway": "Oslo",
    "Sweden": "Stockholm", "Finland": "Helsinki", "Denmark": "Copenhagen", "Ireland": "Dublin",
    "Cuba": "Havana", "Peru": "Lima", "Chile": "Santiago", "Canada": "Ottawa", "Kenya": "Nairobi",
    "India": "New Delhi", "Thailand": "Bangkok", "Iran": "Tehran", "Iraq": "Baghdad", "Turkey":
    "Ankara", "Ukraine": "Kyiv", "Belgium": "Brussels"}
OPPOSITES = {
    "hot": "cold", "big": "small", "up": "down", "left": "right", "day": "night", "open": "closed",
    "happy": "sad", "fast": "slow", "early": "late", "full": "empty", "hard": "soft", "rich":
    "poor", "young": "old", "wet": "dry", "light": "dark", "first": "last", "true": "false", "good":
    "bad", "high": "low", "long": "short", "strong": "weak", "loud": "quiet", "thick": "thin",
    "inside": "outside", "before": "after", "always": "never", "love": "hate", "push": "pull",
    "buy": "sell", "win": "lose"}
KINDS = {
    "an animal": ["dog", "horse", "tiger", "sheep", "rabbit", "eagle"],
    "a fruit": ["apple", "banana", "cherry", "lemon", "peach", "grape"],
    "a metal": ["iron", "copper", "gold", "silver", "zinc", "lead"],
    "a color": ["red", "green", "blue", "yellow", "purple", "white"],
    "a month": ["January", "March", "April", "June", "August", "October"],
    "a musical instrument": ["piano", "violin", "flute", "guitar", "trumpet", "drum"]}


def of_pairs(draw, pairs, sentence):
    question, right = draw.choice(sorted(pairs.items()))
    wrong = draw.sample(sorted(value for value in pairs.values() if value != right), CHOICES - 1)
    return sentence.format(question), right, wrong


def capital(draw):
    return of_pairs(draw, CAPITALS, "The capital of {} is")


def opposite(draw):
    return of_pairs(draw, OPPOSITES, 'The opposite of "{}" is')


def kind(draw):
    name = draw.choice(sorted(KINDS))
    right = draw.choice(KINDS[name])
    others = [word for other, words in sorted(KINDS.items()) if other != name for word in words]
    return f"A good example of {name} is the word", right, draw.sample(others, CHOICES - 1)


def total(draw):
    left, right = draw.randint(1, 9), draw.randint(1, 9)
    wrong = draw.sample([number for number in range(2, 19) if number != left + right], CHOICES - 1)
    return f"{left} + {right} =", str(left + right), [str(number) for number in wrong]


def sequence(draw):
    first, step = draw.randint(1, 20), draw.randint(1, 5)
    shown = ", ".join(str(first + step * i) for i in range(4))
    right = first + 4 * step
    wrong = draw.sample([number for number in range(right - 6, right + 7)
                         if number not in (right, right - step) and number > 0], CHOICES - 1)
    return f"{shown},", str(right), [str(number) for number in wrong]


def items():
    """[{"question", "choices", "answer"}], each question with its choices once."""
    draw, made, seen = random.Random(SEED), [], set()
    while len(made) < COUNT:
        question, right, wrong = draw.choice((capital, opposite, kind, total, sequence))(draw)
        choices = [right, *wrong]
        draw.shuffle(choices)
        if (question, *sorted(choices)) in seen:
            continue
        seen.add((question, *sorted(choices)))
        made.append({"question": question, "choices": choices, "answer": choices.index(right)})
    return made
