# Builds what the plan says; only the plan with this number is good enough.
plan=$(cat notes/plan)
if [ "$plan" != "$1" ]; then
    echo "plan $plan is too complex" >&2
    exit 1
fi
echo "login by plan $plan" | tee login.sh
