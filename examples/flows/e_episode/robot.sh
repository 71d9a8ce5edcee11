# A scripted robot: boxes go from floor/ to shelf/. Each call is one line in calls.log, as a real one would be paid for.
set -e
echo "$*" >> calls.log
mkdir -p floor shelf
[ -e begun ] || { touch floor/anvil floor/books floor/clock floor/drums floor/easel floor/flute; touch begun; }
case "$1" in
perceive)
    echo "{\"result\": \"$(ls floor | tr '\n' ' ')\", \"usage\": {\"input_tokens\": 100, \"output_tokens\": 20, \"tool_calls\": 1}}" ;;
plan)
    box=$(ls floor | head -n 1)
    if [ "$box" = books ] && [ ! -e limited ]; then
        touch limited
        echo '{"is_error": true, "result": "too many requests", "retry_after": 90}'
    else
        echo "{\"result\": \"${box:-nothing}\", \"usage\": {\"input_tokens\": 600, \"output_tokens\": 100}}"
    fi ;;
act)    # after a crash this may come a second time, and then finds the box on the shelf
    [ ! -e "floor/$2" ] || mv "floor/$2" "shelf/$2"
    echo "{\"result\": \"$2 is on the shelf\", \"usage\": {\"input_tokens\": 70, \"output_tokens\": 10, \"tool_calls\": 1}}" ;;
observe)
    left=$(ls floor | wc -l)
    echo "{\"result\": \"$left left\", \"left\": $left, \"usage\": {\"input_tokens\": 50, \"output_tokens\": 10, \"tool_calls\": 1}}" ;;
esac
