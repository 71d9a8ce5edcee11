# Runs the code and says how many tests failed.
said=$(sh greet.sh)
echo "tester: $said" >> ../calls.log
if [ "$said" = "hello world" ]; then failed=0; else failed=1; fi
printf '{"summary": "%s", "failed": %s, "usage": {"input_tokens": 150, "output_tokens": 20}}\n' "$said" "$failed"
