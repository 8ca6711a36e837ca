"""The words of the story world: who may live where, and what may be lost, learned or baked.

Knows: lists of words, and which of them fit together.
Must not know: how a story is told (that is `stories`) or how a model is trained.
"""

from __future__ import annotations


def _phrases(text: str) -> list[str]:
    """Those of a text that has "|" or the end of a line between them."""
    return [phrase.strip() for line in text.strip().splitlines() for phrase in line.split("|")]


# --- characters -------------------------------------------------------------------------------

GIRL_NAMES = (
    "Mia Lily Tilly Rosa Ella Nora Ruby Daisy Clara Zoe Anna Hazel Ivy Molly Poppy Luna Sophie "
    "Wilma Greta Bella Fern Maya Stella Olive Penny Tess Amy Lucy Emma Nina Dora Pearl Violet "
    "Willow Pia Juna Mabel Alice Bonnie Cora Elsa Freya Gina Holly Iris Jade Kiki Lola Mona Sally"
).split()

BOY_NAMES = (
    "Pip Otto Max Leo Sam Tom Ben Finn Oscar Hugo Felix Toby Jack Milo Noah Theo Rufus Barnaby "
    "Gus Ned Bruno Jasper Henry Oliver Charlie Walter Archie Monty Rowan Percy Alfie Basil "
    "Casper Dexter Edgar Fred George Harry Igor Jonas Karl Louis Nico Ollie Paul Remy Simon Tim "
    "Victor Zack"
).split()

ANIMALS = (
    "fox rabbit bear mouse owl cat dog hedgehog squirrel frog duck turtle lion elephant monkey "
    "penguin otter badger deer wolf pig goat lamb pony kitten puppy crow sparrow swan snail beaver "
    "raccoon koala panda tiger giraffe mole parrot goose chick donkey camel kangaroo bunny"
).split()

PEOPLE = (
    "farmer baker shepherd sailor painter gardener tailor knight pirate inventor explorer "
    "fisher miller drummer dancer clockmaker cook shoemaker poet teacher"
).split()

GIRLS = "girl princess queen witch mermaid".split()
BOYS = "boy prince king snowman".split()

MAGICAL = "dragon robot giant wizard fairy troll elf gnome unicorn ghost scarecrow".split()

TRAITS = (
    "little brave kind clever curious cheerful gentle shy young tiny friendly happy silly quiet "
    "lonely sleepy polite playful careful hungry busy merry proud honest"
).split()

# What a character loves to do: told as "loved to ...".
PASTIMES = _phrases("""
collect shiny stones | count the stars | sing in the rain | pick wild flowers | jump over puddles
tell funny jokes | read old books | listen to the wind | draw pictures in the sand
chase butterflies | watch the clouds | build tall towers | eat warm pancakes | play hide and seek
dance under the moon | roll down the hills | make new friends | drink hot chocolate
climb tall trees | ask big questions | splash in the mud | hum happy tunes | nap in the sun
look for treasure | wear funny hats | eat sweet strawberries | feed the birds
skip along the path
""")

# --- places: preposition, noun, fitting adjectives ---------------------------------------------

PLACES = (
    ("in", "village", ("small", "quiet", "sunny", "pretty", "tiny")),
    ("in", "town", ("little", "busy", "cheerful", "snowy")),
    ("in", "forest", ("deep", "green", "dark", "quiet", "magic")),
    ("in", "meadow", ("sunny", "wide", "grassy", "green")),
    ("in", "valley", ("green", "hidden", "misty", "peaceful")),
    ("on", "hill", ("windy", "tall", "grassy", "round")),
    ("on", "farm", ("busy", "small", "old", "happy")),
    ("in", "castle", ("grand", "golden", "stone", "huge")),
    ("on", "island", ("tiny", "sunny", "faraway", "sandy")),
    ("in", "garden", ("secret", "lovely", "wild", "pretty")),
    ("by", "lake", ("blue", "calm", "silver", "quiet")),
    ("by", "river", ("wide", "gentle", "winding", "clear")),
    ("in", "cave", ("cozy", "dark", "warm", "hidden")),
    ("in", "cottage", ("cozy", "tiny", "crooked", "old")),
    ("in", "lighthouse", ("tall", "bright", "lonely", "white")),
    ("in", "windmill", ("old", "creaky", "tall", "wooden")),
    ("in", "desert", ("hot", "golden", "wide", "dry")),
    ("in", "jungle", ("noisy", "green", "steamy", "wild")),
    ("by", "harbor", ("busy", "little", "salty", "foggy")),
    ("in", "orchard", ("sunny", "shady", "sweet", "big")),
    ("on", "mountain", ("high", "snowy", "blue", "rocky")),
    ("in", "tower", ("tall", "lonely", "stone", "crooked")),
    ("in", "city", ("big", "bright", "noisy", "busy")),
    ("in", "kingdom", ("faraway", "happy", "peaceful", "tiny")),
    ("on", "beach", ("sandy", "sunny", "long", "warm")),
    ("near", "pond", ("small", "muddy", "round", "still")),
    ("near", "bridge", ("old", "stone", "narrow", "mossy")),
    ("in", "treehouse", ("high", "cozy", "wooden", "secret")),
    ("on", "boat", ("little", "white", "rusty", "cozy")),
    ("in", "field", ("wide", "golden", "flowery", "sunny")),
)

# --- objects: noun, fitting adjectives ----------------------------------------------------------

COLORS = ("red", "blue", "green", "yellow", "purple", "orange", "pink", "white")
SHINY = ("golden", "silver", "shiny", "tiny")
WOODEN = ("wooden", "old", "red", "blue", "tiny")
SOFT = ("soft", "striped", "red", "blue", "green", "yellow", "woolly", "warm")

OBJECTS = (
    ("kite", COLORS),
    ("ball", COLORS),
    ("hat", SOFT),
    ("scarf", SOFT),
    ("blanket", SOFT),
    ("mitten", SOFT),
    ("sock", SOFT),
    ("coat", SOFT),
    ("pillow", SOFT),
    ("teddy", SOFT),
    ("bell", SHINY),
    ("key", SHINY),
    ("ring", SHINY),
    ("crown", SHINY),
    ("coin", SHINY),
    ("spoon", SHINY),
    ("watch", SHINY),
    ("whistle", SHINY),
    ("button", (*SHINY, "red", "blue")),
    ("necklace", SHINY),
    ("boat", WOODEN),
    ("drum", WOODEN),
    ("flute", WOODEN),
    ("box", WOODEN),
    ("chair", WOODEN),
    ("sled", WOODEN),
    ("train", WOODEN),
    ("violin", WOODEN),
    ("puzzle", WOODEN),
    ("lantern", COLORS),
    ("umbrella", COLORS),
    ("balloon", COLORS),
    ("ribbon", COLORS),
    ("cup", COLORS),
    ("bucket", COLORS),
    ("bag", COLORS),
    ("boot", COLORS),
    ("wagon", COLORS),
    ("scooter", COLORS),
    ("marble", COLORS),
    ("feather", COLORS),
    ("book", ("old", "thick", "little", "green", "blue")),
    ("map", ("old", "torn", "secret", "yellow")),
    ("letter", ("long", "secret", "pink", "little")),
    ("basket", ("round", "big", "woven", "little")),
    ("shell", ("pink", "white", "shiny", "curly")),
    ("stone", ("smooth", "shiny", "round", "magic")),
    ("mirror", ("round", "silver", "magic", "little")),
    ("paintbrush", ("long", "thin", "magic", "blue")),
    ("broom", ("old", "long", "magic", "crooked")),
)

HIDING_SPOTS = _phrases("""
under the old bridge | behind a mossy log | inside a hollow tree | in a pile of leaves
on top of the haystack | next to the well | under a big mushroom | at the bottom of the pond
in an empty nest | behind the garden gate | between two gray rocks | in the tall grass
under the kitchen table | behind the bakery | on a low branch | inside an old boot
beside the stream | in a patch of clover | on the church steps | under a thorny bush
""")

# --- skills: verb, what went wrong, what the teacher said ---------------------------------------

SKILLS = (
    ("swim", "the water was cold and deep", "Kick your feet and breathe"),
    ("sing", "every note came out as a squeak", "Open your mouth and smile"),
    ("dance", "there were too many steps to remember", "Listen to the music first"),
    ("paint", "the paint dripped all over the floor", "Start with one small dot"),
    ("whistle", "only air came out", "Make your lips round"),
    ("skate", "the ice was very slippery", "Bend your knees a little"),
    ("bake bread", "the dough was as hard as a rock", "Give the dough time to rest"),
    ("ride a bicycle", "the wheels wobbled from side to side", "Look ahead and keep going"),
    ("climb trees", "the branches were very high", "Hold on with both arms"),
    ("play the trumpet", "it sounded like a sick goose", "Take a deep breath"),
    ("read", "the letters seemed to jump around", "Say one letter at a time"),
    ("write", "the ink made a big blot", "Hold the pencil softly"),
    ("juggle", "the apples kept falling down", "Begin with two apples"),
    ("fly a kite", "the string got stuck in a tree", "Wait for the wind"),
    ("catch fish", "the fish were too fast", "Be still and wait"),
    ("knit", "the wool turned into a big knot", "Go slowly, one loop at a time"),
    ("row a boat", "the boat went round and round", "Pull with both sides at once"),
    ("tell stories", "the words would not come out", "Just begin with a name"),
    ("build a snow house", "the roof fell in with a thump", "Press the snow hard"),
    ("cook soup", "the soup tasted like old socks", "Add a little salt and love"),
    ("count to a hundred", "the numbers got all mixed up", "Count your steps as you walk"),
    ("hop on one leg", "the ground kept coming up too fast", "Look at one spot"),
    ("speak to the bees", "the bees only buzzed", "Speak in a soft voice"),
    ("make friends", "the others seemed so far away", "Say hello and share a smile"),
)

# --- journeys -----------------------------------------------------------------------------------

SIGHTS = _phrases("""
the sea | the first snow | the northern lights | the rainbow waterfall
the oldest tree in the world | the singing stones | the valley of flowers | the moon festival
the crystal cave | the flying lanterns | the great clock | the dancing whales | the king's parade
the sunrise from the mountain | the glowing fireflies | the circus | the big ships
the falling stars | the butterfly tree | the frozen lake
""")

# What blocked the way; how a helper solved it (told as "{name} ...").
OBSTACLES = (
    ("a wide river", "showed {him} a row of flat stones to step on"),
    ("a steep hill", "told {him} to take tiny steps and sing a song"),
    ("a dark tunnel", "lit a small lamp and walked beside {him}"),
    ("a broken bridge", "tied a strong rope from one side to the other"),
    ("a tall wall", "knew a little hole behind the ivy"),
    ("a thick fog", "rang a bell so that {he} could follow the sound"),
    ("a muddy swamp", "laid long branches over the mud"),
    ("a terrible storm", "shared a dry cave until the rain stopped"),
    ("a locked gate", "found the key under a flower pot"),
    ("a field of thorns", "knew a secret path around it"),
    ("a deep hole", "pushed a fallen tree across it"),
    ("a sleepy guard", "asked the guard very politely to let them pass"),
    ("a fork in the road", "read the old sign and pointed to the left"),
    ("a noisy goose that would not move", "gave the goose a piece of bread"),
)

# --- food, seeds, fears, troubles ---------------------------------------------------------------

FOODS = _phrases("""
honey cake | apple pie | berry jam | pumpkin soup | cinnamon buns | carrot stew | plum pudding
nut bread | cherry tart | lemon cookies | corn muffins | peach pancakes | ginger snaps
potato pie | banana bread | vanilla custard
""")

ACCIDENTS = _phrases("""
the oven was too hot and everything burned | a gust of wind blew the flour away
the bowl fell down with a loud crash | there was no sugar left in the jar
some hungry ants came marching in | the milk spilled all over the table
{he} mixed up the salt and the sugar | {he} dropped it on the way in a puddle
""")

PLANTS = _phrases("""
sunflower | pumpkin | apple tree | rose | tulip | beanstalk | cherry tree | carrot | melon
lemon tree | strawberry | daisy bush | pear tree | cabbage
""")

PLANT_TROUBLES = _phrases("""
the ground was too dry | the weeds grew too fast | a hungry caterpillar sat on the leaf
the frost came at night | there was too much shade | nothing seemed to happen
""")

PLANT_CARES = _phrases("""
carried fresh water every morning | pulled out the weeds one by one | sang a slow song to the soil
built a little fence of sticks | covered the soil with warm straw | waited and waited in the sun
""")

# What was feared, what the strange sign was, what it turned out to be.
FEARS = (
    ("the dark", "two yellow eyes", "a sleepy owl"),
    ("thunder", "a loud rumble", "a cart full of pumpkins"),
    ("deep water", "a row of bubbles", "a friendly fish"),
    ("the wind", "a long howl", "an open window"),
    ("ghosts", "a white shape", "a sheet on a line"),
    ("spiders", "a shadow with eight legs", "a small spider who knitted lace"),
    ("strangers", "a knock at the door", "a lost traveler with a sweet smile"),
    ("the attic", "a scratching noise", "a mouse with a nutshell"),
    ("shadows", "a huge shadow", "a tiny beetle near a candle"),
    ("the woods at night", "a crackling sound", "a hedgehog eating an apple"),
    ("monsters", "something wiggling under the bed", "a lost kitten"),
    ("heights", "a voice from above", "a cloud that looked like a sheep"),
    ("the cellar", "a slow drip", "a leaking barrel of cider"),
    ("big crowds", "a great noise", "a choir that sang for everybody"),
)

# How someone got stuck; how they were set free.
TROUBLES = (
    ("stuck in the mud", "pulled with a long stick"),
    ("caught in a net", "untied every knot"),
    ("trapped under a branch", "rolled the branch away"),
    ("lost in the fog", "called out until they met"),
    ("stuck in a tree", "brought a ladder"),
    ("at the bottom of a hole", "let down a rope"),
    ("tangled in the thorns", "cut the thorns with care"),
    ("locked in a shed", "found the rusty key"),
    ("stuck on a rock in the stream", "made a raft of logs"),
    ("shivering in the snow", "made a warm fire"),
    ("stuck in a chimney", "pushed from below with a broom"),
    ("caught in a storm", "held out a big umbrella"),
)

# Lonely creatures that everybody fears, and why everybody was wrong.
SCARY_KINDS = "dragon giant troll bear wolf ghost lion monster".split()
SCARY_DEEDS = _phrases("""
roared all night | stamped on the ground | made the windows shake | growled behind the rocks
hid in the ruins | howled at the moon | blew smoke over the roofs | banged on an iron pot
""")
SCARY_REASONS = _phrases("""
had a bad toothache | had no friends at all | was afraid of the dark | had a thorn in one foot
only wanted to dance | could not find the way home | had lost a favorite song
was hungry for some warm soup | had a terrible cold | wanted to hear a bedtime story
""")

WEATHER = _phrases("""
The sun was shining and the birds were singing. | A soft rain was falling on the roofs.
The wind smelled of flowers. | The sky was blue without a single cloud.
Snow lay on the ground like sugar. | The leaves were red and gold.
The morning was cool and fresh. | Bees were buzzing in the clover.
A light mist hung over the grass. | The air smelled of fresh bread.
""")

TIMES = _phrases("""
one day | one day | one day | one morning | one sunny morning | one windy afternoon | one evening
early one morning | one rainy day | one cold winter day | one warm summer day | one night
""")

# Plot -> the lessons that fit it.
LESSONS = {
    "lost": _phrases("""
        a friend makes every search easier | it is good to ask for help
        what is lost can be found again | two pairs of eyes are better than one
    """),
    "found": _phrases("""
        honesty is the best treasure | giving makes the heart light
        doing the right thing feels good | a friend is worth more than gold
    """),
    "learn": _phrases("""
        practice makes perfect | everybody is a beginner once
        you should never give up | learning is easier with a friend
    """),
    "journey": _phrases("""
        every long road begins with one step | the best part of a journey is a friend
        dreams come true if you follow them | there is always a way
    """),
    "gift": _phrases("""
        the best gifts come from the heart | mistakes can be sweet
        love is the best spice | friends like you just as you are
    """),
    "quarrel": _phrases("""
        sharing is better than having | a kind word ends a quarrel
        it is never too late to say sorry | friends are more precious than things
    """),
    "rescue": _phrases("""
        even small heroes can do great things | a brave heart is stronger than fear
        helping others makes you happy | kindness always comes back
    """),
    "afraid": _phrases("""
        things are less scary when you look at them closely
        being brave does not mean having no fear
        fear gets small when you share it | not everything strange is bad
    """),
    "lonely": _phrases("""
        you should not judge others by their looks | everybody needs a friend
        a kind question can open any door | a scary face can hide a soft heart
    """),
    "grow": _phrases("""
        patience is a kind of magic | good things need time
        love makes everything grow | big things begin very small
    """),
}
