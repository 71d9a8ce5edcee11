# Takes an entry that was learned; after a crash the same one may come again, so it is looked for first.
grep -qsF "\"id\": \"$HOLDFAST_ENTRY_ID\"" ../knowledge.jsonl || printf '%s\n' "$HOLDFAST_ENTRY" >> ../knowledge.jsonl
