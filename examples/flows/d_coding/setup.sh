#!/bin/sh
# Make the repository that the coder works in: beside its place, then moved, so that it is whole or not there.
set -e
[ -d repo ] && exit 0
rm -rf new && mkdir new
cat > new/plan.md <<'END'
# Add slug()

`slug.slug(title)` returns a title in lower case, words joined by single dashes. `python slug.py TITLE` prints it.
END
cat > new/test_slug.py <<'END'
import unittest

from slug import slug


class SlugTest(unittest.TestCase):
    def test_words_are_joined(self):
        self.assertEqual(slug("Hold  fast, then go on!"), "hold-fast-then-go-on")

    def test_nothing_is_nothing(self):
        self.assertEqual(slug(""), "")
END
git -C new init --quiet --initial-branch=main
git -C new add .
git -C new -c user.name=setup -c user.email=setup@example.invalid commit --quiet --message "what slug() must do"
mv new repo
