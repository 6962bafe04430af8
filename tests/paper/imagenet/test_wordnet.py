import hashlib
import re
from dataclasses import replace

import pytest

from openradial.errors import DataError, FetchError
from paper.imagenet.ilsvrc_classes import ARTIFACT, wnids
from paper.imagenet.wordnet import SOURCE, WordNet

# A sled dog is a working dog and a person's name is an instance: two paths, and the pointer @i.
LINES = """\
  1 This software and database is being provided to you, the LICENSEE, by  
  2 WordNet 3.0 Copyright 2006 by Princeton University.  All rights reserved.  
00000001 03 n 01 entity 0 002 ~ 00000002 n 0000 ~ 00000003 n 0000 | that which is  
00000002 05 n 02 dog 0 domestic_dog 0 001 @ 00000001 n 0000 | barks | and bites  
00000003 06 n 01 tool 0 001 @ 00000001 n 0000 | does work  
00000004 05 n 01 working_dog 0 003 @ 00000002 n 0000 @ 00000003 n 0000 + 00000009 v 0101 | both  
00000005 05 n 0a Rex 0 a 1 b 2 c 3 d 4 e 5 f 6 g 7 h 8 i 9 001 @i 00000004 n 0000 | a certain dog  
"""  # noqa: W291


@pytest.fixture(scope="session")
def wordnet(fetched):
    return fetched(WordNet.load)


def written(folder, text=LINES):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "data.noun").write_text(text)
    return folder


def test_synsets_have_words_files_and_all_their_hypernyms(tmp_path):
    small = WordNet.read(written(tmp_path) / "data.noun")
    assert len(small) == 5
    assert small["n00000002"].lemmas == ("dog", "domestic_dog")
    assert small["n00000003"].file == 6
    assert small["n00000004"].hypernyms == ("n00000002", "n00000003")
    assert (len(small["n00000005"].lemmas), small["n00000005"].hypernyms) == (10, ("n00000004",))


def test_what_is_under_a_synset_is_reached_on_any_path(tmp_path):
    small = WordNet.read(written(tmp_path) / "data.noun")
    assert small.under("n00000003") == {"n00000003", "n00000004", "n00000005"}
    assert small.under("n00000001") == set(small.synsets)
    assert small.under("n00000005") == {"n00000005"}


def test_there_are_as_many_paths_as_ways_up(tmp_path):
    small = WordNet.read(written(tmp_path) / "data.noun")
    assert list(small.paths("n00000005")) == [
        ("n00000005", "n00000004", "n00000002", "n00000001"),
        ("n00000005", "n00000004", "n00000003", "n00000001"),
    ]


@pytest.mark.parametrize("place", [".", "dict", "wordnet", "usr/share/wordnet"])
def test_a_users_folder_may_hold_it_in_the_usual_places(tmp_path, place):
    written(tmp_path / place)
    assert len(WordNet.load(tmp_path)) == 5


def test_a_folder_without_it_says_what_is_expected(tmp_path):
    message = (
        f"{tmp_path} must hold WordNet 3.0: expected data.noun there or in dict, wordnet, usr/share/wordnet; "
        "unpack WNdb-3.0.tar.gz there, or omit the folder to download it"
    )
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        WordNet.load(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must be data.noun of WordNet 3.0, whose numbers are ImageNet's, and its first lines do not say so"),
        (LINES.replace("3.0", "3.1"), "must be data.noun of WordNet 3.0"),
        (LINES[:-70], r"line 7 is not a synset \(.*\); the file is damaged, get it again$"),
        (LINES.replace("00000002 05", "00000002 xx"), "line 4 is not a synset"),
        (LINES.replace("n 01 tool", "v 01 tool"), "line 5 is not a synset"),
        (LINES + "\n", "line 8 is not a synset"),
        (
            LINES.replace("@ 00000003", "@ 00000007"),
            "n00000004 is a kind of n00000007, which is missing; the file is truncated, get it again$",
        ),
    ],
)
def test_damage_is_named(tmp_path, text, message):
    with pytest.raises(DataError, match=message):
        WordNet.load(written(tmp_path, text))


def test_a_number_that_is_no_noun_is_named(tmp_path):
    small = WordNet.load(written(tmp_path))
    message = "'n99999999' is not a noun of WordNet 3.0; a wnid is n and eight digits, as in n00021939"
    for call in (small.under, lambda wnid: list(small.paths(wnid)), lambda wnid: small[wnid]):
        with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
            call("n99999999")


def test_a_cache_without_it_and_no_network_names_the_way_out(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENRADIAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("OPENRADIAL_DATA", raising=False)
    checksums = {"data.noun": f"sha256:{hashlib.sha256(LINES.encode()).hexdigest()}"}
    monkeypatch.setattr("paper.imagenet.wordnet.SOURCE", replace(SOURCE, files=checksums, origins=()))
    with pytest.raises(FetchError, match=r"wordnet is not in .*; get data.noun from https://wordnet.princeton.edu"):
        WordNet.load()
    assert len(WordNet.load(written(tmp_path))) == 5


def test_wordnet_has_82115_nouns_under_one_top(wordnet):
    assert len(wordnet) == 82_115
    assert wordnet.under("n00001740") == set(wordnet.synsets)
    assert wordnet[ARTIFACT].lemmas == ("artifact", "artefact")


def test_522_classes_are_artifacts_on_some_path_516_on_the_first_and_518_by_file(wordnet):
    def first(wnid):
        above = wordnet[wnid].hypernyms
        return {wnid} | (first(above[0]) if above else set())

    artifacts = wordnet.under(ARTIFACT)
    assert sum(wnid in artifacts for wnid in wnids()) == 522
    assert sum(any(ARTIFACT in path for path in wordnet.paths(wnid)) for wnid in wnids()) == 522
    assert sum(ARTIFACT in first(wnid) for wnid in wnids()) == 516
    assert sum(wordnet[wnid].file == 6 for wnid in wnids()) == 518


def test_what_is_under_a_synset_has_it_on_a_path(wordnet):
    dogs = wordnet.under("n02084071")
    for wnid in wnids():
        assert (wnid in dogs) == any("n02084071" in path for path in wordnet.paths(wnid))
    assert sum(wnid in dogs for wnid in wnids()) == 118


def test_the_source_names_its_file():
    assert list(SOURCE.files) == ["data.noun"]
