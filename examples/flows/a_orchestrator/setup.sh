#!/bin/sh
# Make the repository that the flow works in, and the remote that it pushes to; beside, then moved, so whole or not there.
set -e
[ -d repo ] && exit 0
export GIT_AUTHOR_NAME=setup GIT_AUTHOR_EMAIL=setup@example.invalid GIT_AUTHOR_DATE=2026-01-01T00:00:00Z
export GIT_COMMITTER_NAME=setup GIT_COMMITTER_EMAIL=setup@example.invalid GIT_COMMITTER_DATE=2026-01-01T00:00:00Z
rm -rf new && mkdir new
git init --quiet --bare --initial-branch=main remote.git
git init --quiet --initial-branch=main new
echo "# Greetings" > new/README.md
git -C new add .
git -C new commit --quiet --message "begin"
git -C new remote add origin ../remote.git
git -C new push --quiet origin main
mv new repo
