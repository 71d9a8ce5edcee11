# Plans the work: a scripted stand-in for a model. Each call is written down, as a real one would be paid for.
echo "architect" >> ../calls.log
printf '# Plan\n\n1. write greet.sh\n2. run it\n\nGoal: %s\n' "$1" > plan.md
printf '{"summary": "plan: %s", "usage": {"input_tokens": 900, "output_tokens": 300}}\n' "$1"
