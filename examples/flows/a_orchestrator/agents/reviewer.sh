# Reads the code; while the file reviewer-is-down is there, the service behind it does not answer.
echo "reviewer" >> ../calls.log
if [ -e ../reviewer-is-down ]; then
    echo "the reviewer's service does not answer" >&2
    exit 1
fi
printf '{"summary": "looks good", "usage": {"input_tokens": 1200, "output_tokens": 90}}\n'
