# A scripted writer: writes the documents, and reports what was learned.
echo "writer $*" >> ../calls.log
printf '# Login\n\n%s\n' "$1" > docs.md
echo '{"result": "documented", "usage": {"input_tokens": 120, "output_tokens": 40},
  "knowledge": [{"id": "KE-42a", "text": "refresh tokens need a clock that never jumps", "kind": "lesson"}]}'
