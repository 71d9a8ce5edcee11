# A scripted writer: writes the documents.
echo "writer $*" >> ../calls.log
printf '# Login\n\n%s\n' "$1" > docs.md
echo '{"result": "documented", "usage": {"input_tokens": 120, "output_tokens": 40}}'
