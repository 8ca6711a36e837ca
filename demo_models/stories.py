"""Short stories for children, invented from an explicit world, with the facts behind them.

Knows: how a story is told: who, where, what happens, in which words, and what follows from it.
Must not know: tokens, models, training. A story is text and facts, nothing else.

A seed gives one story, always the same one. Every story belongs to one of two splits: the
combination (kind of hero, topic, place) is hashed, and about one combination in ten is reserved
for held-out stories, so that no training story ever shares one with them.

>>> tell(1) == tell(1)
True
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from demo_models import story_words as world

SPLITS = ("train", "held-out")
RESERVED_ONE_IN = 10


@dataclass(frozen=True)
class Character:
    """Someone in a story; `she` decides every pronoun."""

    name: str
    kind: str
    trait: str
    she: bool

    def pronouns(self) -> tuple[str, str, str, str]:
        """Subject, object, possessive and reflexive form."""
        return ("she", "her", "her", "herself") if self.she else ("he", "him", "his", "himself")


@dataclass(frozen=True)
class Question:
    """One thing a reader may ask: the fact it is about, ways to ask, and the short answer."""

    fact: str
    forms: tuple[str, ...]
    answer: str


@dataclass(frozen=True)
class Story:
    """A finished story and what is true in it.

    `summaries` are equivalent one-sentence summaries, the first being the usual one; `combination`
    is what the split is decided by.
    """

    text: str
    plot: str
    combination: tuple[str, str, str]
    hero: Character
    friend: Character
    facts: dict[str, str]
    questions: tuple[Question, ...]
    summaries: tuple[str, ...]
    opening: str


def with_article(phrase: str) -> str:
    """The phrase after "a" or "an", by sound.

    >>> with_article("owl"), with_article("unicorn"), with_article("honest fox")
    ('an owl', 'a unicorn', 'an honest fox')
    """
    vowel = phrase[0] in "aeiou" and not phrase.startswith(("uni", "one"))
    return ("an " if vowel or phrase.startswith("honest") else "a ") + phrase


def question_text(question: str, story: str) -> str:
    """A question about a story as T5 reads it."""
    return f"question: {question} context: {story}"


def summary_text(story: str) -> str:
    """A story to be summarised as T5 reads it."""
    return f"summarize: {story}"


def is_reserved(combination: tuple[str, str, str]) -> bool:
    """Whether stories with this (kind of hero, topic, place) are kept out of training."""
    digest = hashlib.sha256("|".join(combination).encode()).digest()
    return int.from_bytes(digest[:4], "big") % RESERVED_ONE_IN == 0


class _Words(dict[str, str]):
    """Slots of the sentence forms; `{He}` is `{he}` with a capital letter."""

    def __missing__(self, key: str) -> str:
        lower = key[0].lower() + key[1:]
        if lower == key:
            raise KeyError(key)
        value = self[lower]
        return value[0].upper() + value[1:]


@dataclass
class _Scene:
    """A story while it is being told."""

    rng: random.Random
    words: _Words
    sentences: list[str] = field(default_factory=list)
    facts: dict[str, str] = field(default_factory=dict)
    questions: list[Question] = field(default_factory=list)
    summaries: tuple[str, ...] = ()

    def fill(self, form: str) -> str:
        return form.format_map(self.words)

    def say(self, *forms: str) -> None:
        self.sentences.append(self.fill(self.rng.choice(forms)))

    def maybe(self, chance: float, *forms: str) -> None:
        if self.rng.random() < chance:
            self.say(*forms)

    def fact(self, name: str, value: str, questions: str) -> None:
        """Note something true, and how a reader may ask for it, question after question."""
        answer = self.fill(value)
        self.facts[name] = answer
        forms = tuple(self.fill(f"{form}?") for form in questions.removesuffix("?").split("? "))
        self.questions.append(Question(name, forms, answer))

    def sum_up(self, *forms: str) -> None:
        self.summaries = tuple(map(self.fill, forms))


# --- plots: each tells what happens between the opening and the close ---------------------------


def _meet(scene: _Scene) -> None:
    """The friend enters."""
    scene.say(
        "Along came {pal}, {a_pal}.",
        "Just then, {a_pal} named {pal} came by.",
        "Soon {he} met {pal}, {a_pal}.",
        "{A_pal} named {pal} stopped to look.",
        "Then {pal} the {pal_kind} looked up from the grass.",
        "By good luck, {pal} the {pal_kind} was near.",
        "A voice said hello. It was {pal}, {a_pal}.",
    )
    scene.fact(
        "friend",
        "{pal}",
        "Who helped {hero}? Who did {hero} meet? What is the name of the {pal_kind}? Who was the "
        "helper?",
    )
    _introduce_friend(scene)


def _introduce_friend(scene: _Scene) -> None:
    scene.fact(
        "friend kind",
        "{a_pal_kind}",
        "What was {pal}? Who was {pal}? What kind of creature was {pal}?",
    )


def _own_object(scene: _Scene, topic: str) -> None:
    look = scene.rng.choice(dict(world.OBJECTS)[topic])
    scene.words.update(noun=topic, look=look, an_object=with_article(f"{look} {topic}"))


def _lost(scene: _Scene, topic: str) -> None:
    _own_object(scene, topic)
    scene.words["spot"] = scene.rng.choice(world.HIDING_SPOTS)
    scene.say(
        "{He} had {an_object} that {he} loved very much.",
        "{His} greatest treasure was {an_object}.",
        "{Hero} never went anywhere without {an_object}.",
        "For {his} birthday, {he} had been given {an_object}.",
        "{His} grandmother had given {him} {an_object}.",
    )
    scene.fact(
        "object", "{an_object}", "What did {hero} lose? What was lost? What was {hero} looking for?"
    )
    scene.fact("look", "{look}", "What was the {noun} like? How did the {noun} look?")
    scene.say(
        "But {when} the {noun} was gone.",
        "{When} {he} woke up and the {noun} was gone.",
        "{When} {he} looked for the {noun}, but it was not there.",
        "{When} {he} came home without the {noun}.",
    )
    scene.say(
        '"Oh no, where is my {noun}?" cried {hero}.',
        "{Hero} looked under the bed and behind the door, but found nothing.",
        "{He} searched high and low until {he} was ready to cry.",
        "{Hero} sat down and began to cry.",
        '"I will never find it," {he} said with a sigh.',
    )
    _meet(scene)
    scene.say(
        '"Do not worry, I will help you," said {pal}.',
        '"Let us look together," said {pal} with a smile.',
        '"Two can see more than one," {pal} said.',
        '"Where did you see it last?" asked {pal}.',
        '"Dry your tears and follow me," said {pal}.',
    )
    scene.say(
        "Together they looked everywhere, and there it was, {spot}!",
        "At last they found the {noun} {spot}.",
        "After a long walk, {pal} saw something {look} {spot}. It was the {noun}!",
        "They looked here and there, and then {pal} found the {noun} {spot}.",
        "And what was that {spot}? It was the {look} {noun}!",
    )
    scene.fact(
        "spot",
        "{spot}",
        "Where was the {noun}? Where did they find the {noun}? Where was the {noun} found?",
    )
    scene.say(
        "{Hero} hugged {pal} and danced with joy.",
        '"Thank you, {pal}!" said {hero}, and {he} held the {noun} tight.',
        "{Hero} laughed so loud that the birds flew up.",
        "{Hero} was so happy that {he} jumped up and down.",
    )
    scene.sum_up(
        "{hero} the {kind} lost {an_object}, and {pal} the {pal_kind} helped find it {spot}.",
        "{pal} the {pal_kind} helped {hero} the {kind} find {an_object} {spot}.",
    )


def _found(scene: _Scene, topic: str) -> None:
    _own_object(scene, topic)
    scene.words["spot"] = scene.rng.choice(world.HIDING_SPOTS)
    scene.say(
        "{When} {hero} found {an_object} {spot}.",
        "{When} {he} saw {an_object} lying {spot}.",
        "{When} {he} went for a walk, and there was {an_object} {spot}.",
        "{When} {hero} spotted {an_object} {spot}.",
    )
    scene.fact("object", "{an_object}", "What did {hero} find? What was found?")
    scene.fact("spot", "{spot}", "Where was the {noun}? Where did {hero} find the {noun}?")
    scene.fact("look", "{look}", "What was the {noun} like? How did the {noun} look?")
    scene.say(
        '"How lovely!" said {hero}. "I wish I could keep it."',
        "It was the prettiest thing that {he} had ever seen.",
        "{He} wanted to keep it, but {he} knew that somebody must miss it.",
        '"Somebody must be looking for this," thought {hero}.',
        "{He} picked it up and turned it around and around.",
    )
    scene.say(
        "Then {he} heard {a_pal} named {pal} crying for a lost {noun}.",
        "Down the path, {pal} the {pal_kind} was crying. {F_he} had lost the {noun}.",
        "Soon {he} met {pal}, {a_pal} who had lost {f_his} {noun}.",
        '{He} asked at every door, until {pal} the {pal_kind} cried, "That is mine!"',
    )
    scene.fact(
        "owner",
        "{pal}",
        "Who owned the {noun}? Whose {noun} was it? Who had lost the {noun}? What is the name of "
        "the {pal_kind}?",
    )
    _introduce_friend(scene)
    scene.say(
        "{Hero} gave the {noun} back at once.",
        '"Here it is," said {hero}, and {he} gave the {noun} to {pal}.',
        "It was hard to give it away, but {hero} did what was right.",
        "Without a word, {hero} put the {noun} into {f_his} hands.",
    )
    scene.say(
        '"You are a true friend," said {pal}.',
        "{Pal} was so glad that {f_he} kissed {him} on the nose.",
        '"How can I ever thank you?" asked {pal}. "Come and play," said {hero}.',
        "{Pal} smiled from ear to ear and invited {him} to supper.",
    )
    scene.say(
        "They played together until the sun went down.",
        "They shared a big slice of cake and became friends.",
        "That night, {hero} went to bed with a warm heart.",
        "From then on, {he} had a friend, and that was better than any {noun}.",
    )
    scene.sum_up(
        "{hero} the {kind} found {an_object} {spot} and gave it back to {pal} the {pal_kind}.",
        "{hero} the {kind} gave {an_object} back to {pal} the {pal_kind}.",
    )


def _learn(scene: _Scene, topic: str) -> None:
    _, trouble, advice = next(skill for skill in world.SKILLS if skill[0] == topic)
    scene.words.update(skill=topic, trouble=trouble, advice=advice)
    scene.say(
        "More than anything, {hero} wanted to {skill}.",
        "{Hero} had one big wish. {He} wanted to {skill}.",
        "Every night {he} dreamed that {he} could {skill}.",
        '"I wish I could {skill}," {hero} often said.',
        "{When} {hero} made up {his} mind to {skill}.",
    )
    scene.fact(
        "wish",
        "{skill}",
        "What did {hero} want to do? What did {hero} want to learn? What was the wish of {hero}?",
    )
    scene.say(
        "{When} {he} tried, but {trouble}.",
        "{When} {he} gave it a try, but {trouble}.",
        "It was not easy, because {trouble}.",
        "{He} tried and tried, but {trouble}.",
    )
    scene.fact("trouble", "{trouble}", "What went wrong? Why was it hard?")
    scene.say(
        '"I will never learn it," {he} said sadly.',
        "{Hero} wanted to give up.",
        "Some of the others laughed at {him}.",
        "{Hero} hung {his} head and sat down.",
        "A small tear rolled down {his} nose.",
    )
    _meet(scene)
    scene.say(
        '"I can teach you. {advice}," said {pal}.',
        '"Do you know the secret?" asked {pal}. "{advice}."',
        '"{advice}," said {pal}, "and do not be afraid."',
        '"I was bad at it too," said {pal}. "{advice}."',
    )
    scene.fact("advice", "{advice}", "What did {pal} say? What was the advice of {pal}?")
    scene.say(
        "{Hero} tried again, and again, and then once more.",
        "They practiced all day long.",
        "{Hero} did just that, slowly at first.",
        "Every day after lunch, they practiced together.",
        "{Hero} took a deep breath and tried again.",
    )
    scene.say(
        "And one fine day, {he} could {skill} better than anybody!",
        "In the end {he} could {skill}, and everybody clapped.",
        "At last {hero} could {skill}, and {he} was very proud.",
        '"Look, I can {skill}!" shouted {hero}.',
    )
    scene.sum_up(
        "{hero} the {kind} wanted to {skill}, and {pal} the {pal_kind} taught {him} how.",
        "{pal} the {pal_kind} taught {hero} the {kind} to {skill}.",
    )


def _journey(scene: _Scene, topic: str) -> None:
    obstacle, help_given = scene.rng.choice(world.OBSTACLES)
    scene.words.update(sight=topic, obstacle=obstacle, help=scene.fill(help_given))
    scene.say(
        "{Hero} had never seen {sight}, and {he} thought of nothing else.",
        "{When} {he} heard a traveler talk about {sight}.",
        '"Before I am old, I want to see {sight}," said {hero}.',
        "{Hero} had always dreamed of seeing {sight}.",
        "{When} {hero} decided to go and see {sight}.",
    )
    scene.fact(
        "sight",
        "{sight}",
        "What did {hero} want to see? What was the wish of {hero}? Why did {hero} go on a journey?",
    )
    scene.say(
        "So {he} packed some bread and cheese and set off.",
        "{He} put on {his} best boots and went on {his} way.",
        "{He} said goodbye to everybody and started to walk.",
        "The next day, {he} took {his} bag and left before breakfast.",
        "{He} walked for three days and three nights.",
    )
    scene.say(
        "But {obstacle} was in the way.",
        "But soon {he} came to {obstacle}.",
        "Halfway there, {obstacle} stopped {him}.",
        "After many steps, there was {obstacle} in front of {him}.",
    )
    scene.fact("obstacle", "{obstacle}", "What was in the way? What stopped {hero}?")
    scene.maybe(
        0.6,
        '"What shall I do now?" said {hero}.',
        '"I cannot go on," {he} sighed.',
        "{Hero} did not know what to do.",
        '"Must I go back home?" {he} wondered.',
    )
    _meet(scene)
    scene.say(
        "{Pal} {help}.",
        '"I can help," said {pal}, and {f_he} {help}.',
        "{Pal} only smiled, and then {f_he} {help}.",
        "{Pal} was wise, so {f_he} {help}.",
    )
    scene.say(
        "And then they came around the last corner. How beautiful!",
        "At last they stood side by side and looked, and {hero} could not say a word.",
        "That evening they arrived, and everything was even better than in {his} dreams.",
        '"It is wonderful!" whispered {hero}, and {his} eyes were shining.',
        "Soon they were there, and {hero} shouted with joy.",
    )
    scene.maybe(
        0.5,
        "They stayed until the moon came up.",
        "{Pal} sat beside {him} and shared some nuts.",
        "They promised to come back every year.",
        "{He} sent a letter home to tell everybody about it.",
    )
    scene.sum_up(
        "{hero} the {kind} wanted to see {sight}, and {pal} the {pal_kind} helped {him} "
        "past {obstacle}.",
        "{pal} the {pal_kind} helped {hero} the {kind} to see {sight}.",
    )


def _gift(scene: _Scene, topic: str) -> None:
    accident = scene.fill(scene.rng.choice(world.ACCIDENTS))
    scene.words.update(food=topic, accident=accident)
    scene.say(
        "{When} {hero} wanted to make {food} for {pal}, {a_pal}.",
        "{His} best friend was {pal}, {a_pal}. {When} {hero} made {food} for {f_him}.",
        "{When} {hero} remembered the birthday of {pal}, {a_pal}. {He} started to make {food}.",
        "{When} {pal} the {pal_kind} was sad, so {hero} decided to make {food}.",
    )
    scene.fact("food", "{food}", "What did {hero} make? What was the gift?")
    scene.fact(
        "friend",
        "{pal}",
        "Who was the {food} for? Who was the friend of {hero}? What is the name of the {pal_kind}?",
    )
    _introduce_friend(scene)
    scene.say(
        "{He} put on an apron and hummed a song.",
        "{He} stirred and stirred in a big bowl.",
        "{He} took out the flour, the butter and the eggs.",
        "The whole kitchen began to smell sweet.",
        "{He} had never cooked anything before.",
    )
    scene.say(
        "But {accident}.",
        "Then something went wrong. {Accident}.",
        "But oh dear, {accident}!",
        "Everything went well until {accident}.",
    )
    scene.fact("trouble", "{accident}", "What went wrong? What happened to the {food}?")
    scene.say(
        '"Now I have nothing to give," said {hero}.',
        "{Hero} looked at the mess and felt very sad.",
        "{Hero} hid behind the stove and cried a little.",
        '"It is all ruined!" cried {hero}.',
    )
    scene.say(
        "When {pal} heard about it, {f_he} came running.",
        "There was a knock, and there stood {pal}.",
        "{Pal} looked in at the window and saw everything.",
        "At that moment {pal} opened the door.",
    )
    scene.say(
        '"It is the thought that counts," said {pal}.',
        '"You did all this for me?" asked {pal}, and {f_he} gave {him} a big hug.',
        '{Pal} tasted a little bit and laughed. "It is the best {food} in the world!"',
        '"Let us make it again together," said {pal}.',
        '"I do not need a gift when I have you," said {pal}.',
    )
    scene.say(
        "Then they cleaned the kitchen and cooked side by side.",
        "They ate with two big spoons and giggled until bedtime.",
        "They sat down on the floor and ate it all up.",
        "Soon they had flour on their noses and could not stop laughing.",
    )
    scene.sum_up(
        "{hero} the {kind} made {food} for {pal} the {pal_kind}, but {accident}.",
        "{hero} the {kind} made {food} for {pal} the {pal_kind}.",
    )


def _quarrel(scene: _Scene, topic: str) -> None:
    _own_object(scene, topic)
    scene.say(
        "{When} {hero} and {pal} the {pal_kind} found {an_object} at the same time.",
        "{When} {he} was playing with {pal}, {a_pal}, when they found {an_object}.",
        "{His} neighbor was {pal}, {a_pal}. {When} they both saw {an_object} on the path.",
        "{When} {hero} and {pal} the {pal_kind} saw {an_object} in a shop, and both wanted it.",
    )
    scene.fact(
        "object",
        "{an_object}",
        "What did they both want? What did they find? What was the quarrel about?",
    )
    scene.fact("look", "{look}", "What was the {noun} like? How did the {noun} look?")
    scene.fact(
        "friend",
        "{pal}",
        "Who was the friend of {hero}? Who wanted the {noun} too? What is the name of the "
        "{pal_kind}?",
    )
    _introduce_friend(scene)
    scene.say(
        '"It is mine!" cried {hero}. "No, it is mine!" cried {pal}.',
        '"I saw it first," said {hero}. "But I touched it first," said {pal}.',
        '"Give it to me!" said {hero}, and {he} pulled. {Pal} pulled too.',
        "{Hero} pulled on one side and {pal} pulled on the other.",
    )
    scene.say(
        "They shouted so loudly that the clouds ran away.",
        "They were so angry that they would not speak.",
        "{Pal} went home and slammed the door.",
        "The {noun} almost broke in two.",
        "They sat back to back and did not say a word.",
    )
    scene.say(
        "But it was no fun to be alone, and {hero} felt sorry.",
        "After a while, {hero} began to feel lonely.",
        "{Hero} looked at {pal} and saw a tear on {f_his} cheek.",
        "That night {hero} could not sleep at all.",
    )
    scene.say(
        '"I am sorry. You may have it first," {he} said.',
        '"Let us take turns," said {hero}. "You today and me tomorrow."',
        '"A friend is worth more than a {noun}," said {hero}.',
        '"Could we share it?" asked {hero} in a small voice.',
    )
    scene.say(
        '"I am sorry too," said {pal}, and {f_he} smiled again.',
        "{Pal} gave {him} a hug, and all was well.",
        '"Sharing is twice the fun!" said {pal}.',
        "{Pal} nodded and held out {f_his} hand.",
    )
    scene.say(
        "So they played with the {noun} together all afternoon.",
        "Now the {look} {noun} belongs to both of them.",
        "And they kept the {noun} halfway between their homes.",
        "They never fought about the {noun} again.",
    )
    scene.sum_up(
        "{hero} the {kind} and {pal} the {pal_kind} both wanted {an_object}, "
        "but they learned to share.",
        "{hero} the {kind} and {pal} the {pal_kind} learned to share {an_object}.",
    )


def _rescue(scene: _Scene, topic: str) -> None:
    rescue = dict(world.TROUBLES)[topic]
    scene.words.update(trouble=topic, rescue=rescue)
    scene.say(
        "{When} {he} heard somebody cry for help.",
        '{When} a small voice called, "Help, help!"',
        "{When} {hero} was on {his} way home when {he} heard a strange sound.",
        '"Is anybody there?" somebody cried {when}.',
    )
    scene.say(
        "It was {pal}, {a_pal}, who was {trouble}.",
        "{He} ran to look and saw {pal} the {pal_kind}, {trouble}.",
        "{A_pal} named {pal} was {trouble}.",
        "There was {pal} the {pal_kind}, {trouble} and very scared.",
    )
    scene.fact(
        "friend",
        "{pal}",
        "Who needed help? Who did {hero} help? Who was in trouble? What is the name of the "
        "{pal_kind}?",
    )
    _introduce_friend(scene)
    scene.fact("trouble", "{trouble}", "Where was {pal}? What happened to {pal}?")
    scene.say(
        '"Hold on, I am coming!" shouted {hero}.',
        '"Do not be afraid," said {hero}. "I will get you out."',
        "{Hero} was scared too, but {he} did not run away.",
        "{Hero} thought hard and then {he} had an idea.",
        "The others said that it was too dangerous, but {hero} did not listen.",
    )
    scene.say(
        "{He} {rescue}, and soon {pal} was free.",
        "Quickly {he} {rescue}.",
        "{He} {rescue}, and {pal} was safe at last.",
        "With all {his} strength, {he} {rescue}, and it worked!",
    )
    scene.fact("rescue", "{rescue}", "What did {hero} do? How did {hero} help {pal}?")
    scene.say(
        '"You saved me!" said {pal}.',
        "{Pal} shook all over, and then {f_he} began to laugh.",
        '"I thought that nobody would come," {pal} whispered.',
        "{Pal} was tired and cold, but {f_he} was safe.",
    )
    scene.say(
        "{Hero} took {f_him} home and gave {f_him} hot tea.",
        "They walked home together under the stars.",
        '"That is what friends are for," said {hero}.',
        "A week later, {pal} brought {him} a medal made of tin.",
        "To say thank you, {pal} sang {him} a song.",
    )
    scene.sum_up(
        "{pal} the {pal_kind} was {trouble}, and {hero} the {kind} {rescue}.",
        "{hero} the {kind} helped {pal} the {pal_kind}, who was {trouble}.",
    )


def _afraid(scene: _Scene, topic: str) -> None:
    _, sign, truth = next(fear for fear in world.FEARS if fear[0] == topic)
    scene.words.update(fear=topic, sign=sign, truth=truth)
    scene.say(
        "There was only one problem. {Hero} was afraid of {fear}.",
        "But {hero} was afraid of {fear}.",
        "{Hero} had a secret. {He} was afraid of {fear}.",
        "Nobody knew that {hero} was afraid of {fear}.",
    )
    scene.fact("fear", "{fear}", "What was {hero} afraid of? What did {hero} fear?")
    scene.say(
        "{When} there was {sign}!",
        "{When} {he} noticed {sign}.",
        "{When} {he} was all alone, and suddenly there was {sign}.",
        "{When}, just before bedtime, there was {sign}.",
    )
    scene.fact("sign", "{sign}", "What did {hero} notice? What was strange?")
    scene.say(
        "{Hero} hid under a blanket and shook like a leaf.",
        '"Who is there?" {he} whispered.',
        "{His} knees began to shake.",
        "{He} ran away as fast as {he} could.",
        "{His} heart went thump, thump, thump.",
    )
    _meet(scene)
    scene.say(
        '"Take my hand and we will look together," said {pal}.',
        '"I am afraid sometimes too," said {pal}. "Come with me."',
        '"Being brave means being scared and going anyway," said {pal}.',
        '"Let us find out what it is," said {pal}, and {f_he} lit a candle.',
    )
    scene.say(
        "Step by step they went closer. It was only {truth}!",
        "They looked very carefully, and it was just {truth}.",
        "And what did they find? It was {truth}!",
        "They tiptoed around the corner and found {truth}.",
    )
    scene.fact("truth", "{truth}", "What was it really? What did they find?")
    scene.say(
        "{Hero} laughed until {his} belly hurt.",
        '"Is that all?" said {hero}, and {he} felt ten feet tall.',
        "{Hero} was not afraid anymore.",
        '"I am braver than I thought," said {hero}.',
    )
    scene.sum_up(
        "{hero} the {kind} was afraid of {fear}, "
        "but {pal} the {pal_kind} helped {him} to be brave.",
        "{pal} the {pal_kind} helped {hero} the {kind}, who was afraid of {fear}.",
    )


def _lonely(scene: _Scene, topic: str) -> None:
    deed = scene.rng.choice(world.SCARY_DEEDS)
    reason = scene.rng.choice(world.SCARY_REASONS)
    scene.words.update(deed=deed, reason=reason)
    scene.say(
        "Not far away lived {a_pal_kind} named {pal}, who {deed}.",
        "Everybody was afraid of {pal} the {pal_kind}, who {deed}.",
        "But in the hills lived {pal}, a terrible {pal_kind} who {deed}.",
        "{When} {a_pal_kind} named {pal} came and {deed}.",
    )
    scene.fact(
        "friend",
        "{pal}",
        "Who was everybody afraid of? Who did {hero} visit? What is the name of the {pal_kind}?",
    )
    _introduce_friend(scene)
    scene.fact("deed", "{deed}", "What did {pal} do? What did the {pal_kind} do?")
    scene.say(
        '"Run!" shouted the neighbors, and they locked their doors.',
        "Nobody dared to go near.",
        "Even the soldiers hid under their beds.",
        "The neighbors wanted to chase {f_him} away.",
        "Nobody could sleep anymore.",
    )
    scene.say(
        '"I will go and talk to {f_him}," said {hero}.',
        "Only {hero} was brave enough to go and ask why.",
        "But {hero} took a lantern and went to see {f_him}.",
        "But {hero} packed a piece of cake and knocked at {f_his} door.",
    )
    scene.say(
        '"Why do you do that?" {he} asked.',
        '"Good evening," said {hero} politely. "Are you all right?"',
        '"Please do not eat me," said {hero}. "I only want to talk."',
        '"What is the matter, {pal}?" {he} asked softly.',
    )
    scene.say(
        "It turned out that {pal} {reason}.",
        "{Pal} began to cry. The poor {pal_kind} {reason}.",
        "Then {hero} understood. {Pal} {reason}.",
        "And what do you think? {Pal} {reason}!",
    )
    scene.fact("reason", "{reason}", "Why was {pal} unhappy? What was the matter with {pal}?")
    scene.say(
        "So {hero} stayed and helped {f_him}, and {pal} smiled for the first time.",
        '"Is that all?" said {hero}. "I can help you with that."',
        "{Hero} knew just what to do, and soon {pal} felt much better.",
        "{Hero} sat down beside {f_him} and stayed the whole night.",
    )
    scene.say(
        "The next day everybody came to say sorry to {pal}.",
        "After that, {pal} was the best neighbor of all.",
        "Now {pal} comes to tea every Sunday.",
        "Since that day, the children ride on {f_his} back.",
    )
    scene.sum_up(
        "Everybody was afraid of {pal} the {pal_kind}, but {hero} the {kind} found out "
        "that {f_he} {reason}.",
        "{hero} the {kind} found out that {pal} the {pal_kind} {reason}.",
    )


def _grow(scene: _Scene, topic: str) -> None:
    trouble = scene.rng.choice(world.PLANT_TROUBLES)
    care = scene.rng.choice(world.PLANT_CARES)
    scene.words.update(plant=topic, a_plant=with_article(topic), trouble=trouble, care=care)
    scene.say(
        "{When} {hero} planted a seed. {He} wanted to grow {a_plant}.",
        "{When} {he} put a tiny seed into the ground and hoped for {a_plant}.",
        "{Hero} wanted to grow {a_plant}, so {when} {he} planted a seed.",
        "{When} the wind brought {him} a seed. It was the seed of {a_plant}.",
    )
    scene.fact("plant", "{a_plant}", "What did {hero} plant? What did {hero} want to grow?")
    scene.say(
        "{He} looked every hour, but {trouble}.",
        "But days went by, and {trouble}.",
        "But it was not easy, because {trouble}.",
        "At first all was well, but then {trouble}.",
    )
    scene.fact("trouble", "{trouble}", "What was the problem? What went wrong?")
    scene.say(
        '"It will never grow," said {hero}.',
        "{Hero} stamped {his} foot.",
        '"Why is it so slow?" {he} asked the sky.',
        "{Hero} was about to throw everything away.",
    )
    _meet(scene)
    scene.say(
        '"Good things take time," said {pal}.',
        '"A seed is like a friend. It needs love," said {pal}.',
        '"You must be patient," said {pal}.',
        '"May I help you?" asked {pal}.',
    )
    scene.say(
        "So they {care}.",
        "Day after day, they {care}.",
        "{Hero} listened, and the two of them {care}.",
        "Side by side, they {care}.",
    )
    scene.fact("care", "{care}", "What did they do? How did they help the {plant}?")
    scene.say(
        "In spring, there stood {a_plant} as tall as a house!",
        "And then a green leaf came out, and at last there was a fine {plant}.",
        "By summer it was the biggest {plant} that anybody had ever seen.",
        "One morning they woke up and saw the loveliest {plant} in the world.",
    )
    scene.maybe(
        0.5,
        "They shared it with all their neighbors.",
        "{Hero} named it after {pal}.",
        "Everybody came to look at it.",
        "They sat in its shade and ate cookies.",
    )
    scene.sum_up(
        "{hero} the {kind} planted a seed, and with the help of {pal} the {pal_kind} "
        "it became {a_plant}.",
        "{hero} the {kind} and {pal} the {pal_kind} grew {a_plant}.",
    )


Plot = Callable[[_Scene, str], None]

_NOUNS = [noun for noun, _ in world.OBJECTS]
# Plot -> how it is told, and its topics.
PLOTS: dict[str, tuple[Plot, list[str]]] = {
    "lost": (_lost, _NOUNS),
    "found": (_found, _NOUNS),
    "learn": (_learn, [skill for skill, *_ in world.SKILLS]),
    "journey": (_journey, world.SIGHTS),
    "gift": (_gift, world.FOODS),
    "quarrel": (_quarrel, _NOUNS),
    "rescue": (_rescue, [trouble for trouble, _ in world.TROUBLES]),
    "afraid": (_afraid, [fear for fear, *_ in world.FEARS]),
    "lonely": (_lonely, world.SCARY_KINDS),
    "grow": (_grow, world.PLANTS),
}

# --- openings and closes ------------------------------------------------------------------------

# Weight, form, and whether the form already says when the story begins ("one day").
OPENINGS = (
    (8, "Once upon a time, there was {a_hero} named {hero} who lived {at_place}.", False),
    (5, "Once upon a time, {at_place}, there lived {a_hero} named {hero}.", False),
    (4, "Once upon a time, {a_hero} named {hero} lived {at_place}.", False),
    (3, "Once upon a time there was {a_hero} called {hero}. {He} lived {at_place}.", False),
    (2, "Once upon a time {at_place}, {a_hero} named {hero} had a very strange day.", True),
    (3, "Once there was {a_hero} named {hero} who lived {at_place}.", False),
    (4, "There was {a_hero} named {hero}. {He} lived {at_place}.", False),
    (2, "There once was {a_hero} who lived {at_place}. {His} name was {hero}.", False),
    (5, "{At_place}, there lived {a_hero} named {hero}.", False),
    (2, "{At_place} lived {a_hero}. {His} name was {hero}.", False),
    (2, "{At_place}, there was {a_hero} whose name was {hero}.", False),
    (3, "Long ago, {at_place}, there lived {a_hero} named {hero}.", False),
    (2, "Far away, {at_place}, there lived {a_hero} named {hero}.", False),
    (2, "A long time ago, {a_hero} named {hero} lived {at_place}.", False),
    (4, "{Hero} was {a_hero} who lived {at_place}.", False),
    (3, "{Hero} the {kind} lived {at_place}.", False),
    (2, "{Hero} was {a_hero}. {He} lived {at_place} with {his} family.", False),
    (4, "{A_hero} named {hero} lived {at_place}.", False),
    (4, "The {trait} {kind} {hero} lived {at_place}.", False),
    (2, "The {trait} {kind} was called {hero}, and {he} lived {at_place}.", False),
    (2, "The {kind} named {hero} lived all alone {at_place}.", False),
    (4, "One day, {a_hero} named {hero} woke up {at_place}.", True),
    (2, "One day, {at_place}, {a_hero} named {hero} woke up early.", True),
    (2, "One sunny morning, {hero} the {kind} woke up {at_place}.", True),
    (2, "It was a beautiful day. {Hero} the {kind} sat {at_place} and yawned.", True),
    (1, "This is the story of {hero}, {a_hero} who lived {at_place}.", False),
    (1, "Have you heard of {hero}, the {trait} {kind} who lived {at_place}?", False),
    (1, "Little {hero} was {a_kind}, and {his} home was {at_place}.", False),
    (1, "Every morning, {hero} the {kind} woke up {at_place} and smiled.", False),
    (1, "Hello! Do you know {hero}? {He} was {a_hero} who lived {at_place}.", False),
)

LATER_TIMES = ("that day", "that morning", "a little later", "after breakfast", "that afternoon")

CLOSES = (
    "From that day on, {hero} knew that {lesson}.",
    "And {hero} learned that {lesson}.",
    "{Hero} never forgot that {lesson}.",
    '"Now I know that {lesson}," said {hero}.',
    "That is how {hero} learned that {lesson}.",
)
FAREWELLS = (
    "And they lived happily ever after.",
    "The end.",
    "{Hero} and {pal} were friends forever.",
    "That night, {hero} slept very well.",
    "And if you listen closely, you can still hear them laugh.",
    "Good night!",
)


def _draw_character(rng: random.Random, kind: str, she: bool) -> Character:
    name = rng.choice(world.GIRL_NAMES if she else world.BOY_NAMES)
    trait = "little" if rng.random() < 0.2 else rng.choice(world.TRAITS)
    return Character(name, kind, trait, she)


def _draw_kind(rng: random.Random, she: bool) -> str:
    family = world.GIRLS if she else world.BOYS
    pool = rng.choices((world.ANIMALS, world.PEOPLE, world.MAGICAL, family), (55, 12, 15, 18))[0]
    return rng.choice(pool)


def tell(seed: int, split: str = "train") -> Story:
    """The story of this seed in one split ("train" or "held-out").

    Args:
        seed: any integer; the same seed gives the same story.
        split: which combinations of (kind of hero, topic, place) the story may use.

    Returns:
        The text, the facts behind it, questions with short answers, and a summary.
    """
    if split not in SPLITS:
        raise ValueError(f"split must be one of {SPLITS}, not {split!r}")
    rng = random.Random(f"{split}:{seed}")
    while True:
        she = rng.random() < 0.5
        kind = _draw_kind(rng, she)
        plot = rng.choice(tuple(PLOTS))
        tell_plot, topics = PLOTS[plot]
        topic = rng.choice(topics)
        preposition, place, looks = rng.choice(world.PLACES)
        combination = (kind, topic, place)
        if is_reserved(combination) == (split == "held-out") and kind != topic:
            break
    hero = _draw_character(rng, kind, she)
    # The other one always has the other pronoun, so that "he" and "she" are never in doubt.
    friend_kind = topic if plot == "lonely" else _draw_kind(rng, not she)
    while friend_kind == kind:  # never two of a kind, so that a kind names one of them
        friend_kind = _draw_kind(rng, not she)
    friend = _draw_character(rng, friend_kind, not she)

    scene = _Scene(rng, _opening_words(rng, hero, friend, (preposition, place, looks)))
    _open(scene)
    tell_plot(scene, topic)
    _close(scene, rng.choice(world.LESSONS[plot]))
    return Story(
        text=" ".join(scene.sentences),
        plot=plot,
        combination=combination,
        hero=hero,
        friend=friend,
        facts=scene.facts,
        questions=tuple(scene.questions),
        summaries=scene.summaries,
        opening=scene.sentences[0],
    )


def _opening_words(
    rng: random.Random, hero: Character, friend: Character, place: tuple[str, str, tuple[str, ...]]
) -> _Words:
    """The slots that every plot may use."""
    he, him, his, himself = hero.pronouns()
    f_he, f_him, f_his, _ = friend.pronouns()
    preposition, noun, looks = place
    return _Words(
        hero=hero.name,
        kind=hero.kind,
        trait=hero.trait,
        a_kind=with_article(hero.kind),
        a_hero=with_article(f"{hero.trait} {hero.kind}"),
        he=he,
        him=him,
        his=his,
        himself=himself,
        pal=friend.name,
        pal_kind=friend.kind,
        a_pal_kind=with_article(friend.kind),
        a_pal=with_article(f"{friend.trait} {friend.kind}"),
        f_he=f_he,
        f_him=f_him,
        f_his=f_his,
        at_place=f"{preposition} {with_article(rng.choice(looks) + ' ' + noun)}",
    )


def _open(scene: _Scene) -> None:
    weights = [weight for weight, _, _ in OPENINGS]
    _, form, dated = scene.rng.choices(OPENINGS, weights)[0]
    scene.words["when"] = scene.rng.choice(LATER_TIMES if dated else world.TIMES)
    scene.say(form)
    scene.fact(
        "hero",
        "{hero}",
        "Who is the story about? Who is the main character? What is the name of the {kind}? What "
        "was the {kind} called?",
    )
    scene.fact(
        "hero kind",
        "{a_kind}",
        "What was {hero}? Who was {hero}? What kind of creature was {hero}?",
    )
    scene.fact(
        "place",
        "{at_place}",
        "Where did {hero} live? Where does the story begin? Where was {hero}?",
    )
    scene.maybe(0.15, *world.WEATHER)
    if scene.rng.random() < 0.45:
        scene.words["pastime"] = scene.rng.choice(world.PASTIMES)
        scene.say(
            "{He} loved to {pastime}.",
            "{Hero} loved to {pastime}.",
            "{He} liked to {pastime}, even on Mondays.",
            "Most of all, {he} loved to {pastime}.",
        )
        scene.fact(
            "pastime", "{pastime}", "What did {hero} love to do? What did {hero} like to do?"
        )


def _close(scene: _Scene, lesson: str) -> None:
    if scene.rng.random() < 0.6:
        scene.words["lesson"] = lesson
        scene.say(*CLOSES)
        scene.fact(
            "lesson",
            "{lesson}",
            "What did {hero} learn? What is the lesson of the story? What is the moral?",
        )
    scene.maybe(0.4, *FAREWELLS)
