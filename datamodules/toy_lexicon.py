"""The words of the toy language. Every English form has one German form in its place, gender, case and number."""

# English singular and plural, gender, German singular, plural, dative plural
NOUNS = [
    tuple(line.split())
    for line in """\
dog dogs m Hund Hunde Hunden
cat cats f Katze Katzen Katzen
child children n Kind Kinder Kindern
man men m Mann Männer Männern
woman women f Frau Frauen Frauen
girl girls n Mädchen Mädchen Mädchen
teacher teachers m Lehrer Lehrer Lehrern
doctor doctors f Ärztin Ärztinnen Ärztinnen
friend friends m Freund Freunde Freunden
neighbour neighbours f Nachbarin Nachbarinnen Nachbarinnen
horse horses n Pferd Pferde Pferden
bird birds m Vogel Vögel Vögeln
king kings m König Könige Königen
queen queens f Königin Königinnen Königinnen
baby babies n Baby Babys Babys
cow cows f Kuh Kühe Kühen
""".splitlines()
]
THINGS = [
    tuple(line.split())
    for line in """\
book books n Buch Bücher Büchern
apple apples m Apfel Äpfel Äpfeln
flower flowers f Blume Blumen Blumen
letter letters m Brief Briefe Briefen
picture pictures n Bild Bilder Bildern
lamp lamps f Lampe Lampen Lampen
table tables m Tisch Tische Tischen
car cars n Auto Autos Autos
bag bags f Tasche Taschen Taschen
ball balls m Ball Bälle Bällen
dress dresses n Kleid Kleider Kleidern
clock clocks f Uhr Uhren Uhren
""".splitlines()
]

# English, German stem to which an ending is added
ADJECTIVES = [
    ("old", "alt"), ("young", "jung"), ("small", "klein"), ("big", "groß"), ("red", "rot"),
    ("new", "neu"), ("beautiful", "schön"), ("quiet", "still"), ("strange", "seltsam"), ("white", "weiß"),
]  # fmt: skip

# German forms by gender (p: plural) in nominative, accusative, dative
DETERMINERS = {
    "the": {"m": "der den dem", "f": "die die der", "n": "das das dem", "p": "die die den"},
    "a": {"m": "ein einen einem", "f": "eine eine einer", "n": "ein ein einem"},
    "this": {"m": "dieser diesen diesem", "f": "diese diese dieser", "n": "dieses dieses diesem"},
    "these": {"p": "diese diese diesen"},
    "no": {"m": "kein keinen keinem", "f": "keine keine keiner", "n": "kein kein keinem", "p": "keine keine keinen"},
}
# adjective endings after der-words and after ein-words
ENDINGS = {
    "der": {"m": "e en en", "f": "e e en", "n": "e e en", "p": "en en en"},
    "ein": {"m": "er en en", "f": "e e en", "n": "es es en", "p": "en en en"},
}
RELATIVE = {"m": "der den dem", "f": "die die der", "n": "das das dem", "p": "die die denen"}

# English he, they, participle, base; German he, they, participle, infinitive; separable prefix or -
ACCUSATIVE_VERBS = [
    tuple(line.split())
    for line in """\
sees see seen see sieht sehen gesehen sehen -
hears hear heard hear hört hören gehört hören -
finds find found find findet finden gefunden finden -
loves love loved love liebt lieben geliebt lieben -
paints paint painted paint malt malen gemalt malen -
carries carry carried carry trägt tragen getragen tragen -
seeks seek sought seek sucht suchen gesucht suchen -
needs need needed need braucht brauchen gebraucht brauchen -
invites invite invited invite lädt laden eingeladen einladen ein
watches watch watched watch schaut schauen angeschaut anschauen an
fetches fetch fetched fetch holt holen abgeholt abholen ab
admits admit admitted admit lässt lassen hereingelassen hereinlassen herein
""".splitlines()
]
DATIVE_VERBS = [
    tuple(line.split())
    for line in """\
helps help helped help hilft helfen geholfen helfen -
thanks thank thanked thank dankt danken gedankt danken -
answers answer answered answer antwortet antworten geantwortet antworten -
assists assist assisted assist steht stehen beigestanden beistehen bei
""".splitlines()
]
GIVING_VERBS = [
    tuple(line.split())
    for line in """\
gives give given give gibt geben gegeben geben -
shows show shown show zeigt zeigen gezeigt zeigen -
brings bring brought bring bringt bringen mitgebracht mitbringen mit
returns return returned return gibt geben zurückgegeben zurückgeben zurück
""".splitlines()
]
INTRANSITIVE_VERBS = [
    tuple(line.split())
    for line in """\
sleeps sleep slept sleep schläft schlafen geschlafen schlafen -
laughs laugh laughed laugh lacht lachen gelacht lachen -
dances dance danced dance tanzt tanzen getanzt tanzen -
works work worked work arbeitet arbeiten gearbeitet arbeiten -
waits wait waited wait wartet warten gewartet warten -
listens listen listened listen hört hören hingehört hinhören hin
""".splitlines()
]
SAYING_VERBS = [
    tuple(line.split())
    for line in """\
says say said say sagt sagen gesagt sagen -
knows know known know weiß wissen gewusst wissen -
believes believe believed believe glaubt glauben geglaubt glauben -
""".splitlines()
]
# English, German he, they
MODALS = [
    ("can", "kann", "können"),
    ("must", "muss", "müssen"),
    ("should", "soll", "sollen"),
    ("may", "darf", "dürfen"),
]

TIMES = [
    ("today", "heute"), ("now", "jetzt"), ("often", "oft"), ("always", "immer"), ("in the morning", "am Morgen"),
    ("on Monday", "am Montag"), ("at night", "in der Nacht"), ("sometimes", "manchmal"),
]  # fmt: skip
MANNERS = [
    ("quickly", "schnell"), ("quietly", "leise"), ("gladly", "gern"), ("carefully", "vorsichtig"),
    ("with joy", "mit Freude"), ("together", "zusammen"),
]  # fmt: skip
PLACES = [
    ("in the garden", "im Garten"), ("in the park", "im Park"), ("at home", "zu Hause"), ("at school", "in der Schule"),
    ("on the bridge", "auf der Brücke"), ("behind the house", "hinter dem Haus"), ("here", "hier"), ("there", "dort"),
]  # fmt: skip
CONJUNCTIONS = [("because", "weil"), ("when", "wenn"), ("although", "obwohl"), ("while", "während")]
