# Writes the code; the first draft greets nobody.
echo "coder $1" >> ../calls.log
if [ "$1" = 1 ]; then who=nobody; else who=world; fi
printf 'echo "hello %s"\n' "$who" > greet.sh
printf '{"summary": "draft %s of greet.sh", "usage": {"input_tokens": 2000, "output_tokens": 700}}\n' "$1"
