# Outlives the service by a moment: when the pipe that only the service holds is closed, kills what is left of its programs.
# $1 is an entry of the environment that all of them inherit. Lines on stdin: "+ GROUP" and "- GROUP".
trap '' HUP INT TERM
groups=' '
while read -r sign group; do
    case $sign in
    +) groups="$groups$group " ;;
    -) case $groups in *" $group "*) groups="${groups%%" $group "*} ${groups#*" $group "}" ;; esac ;;
    esac
done
for group in $groups; do
    kill -s KILL -- "-$group"
done
# Those that left their group. What is killed may have started something meanwhile, so look again, but not for ever.
for round in 1 2 3 4 5 6 7 8; do
    # grep calls it an error when a process ends before it is read, so what it found counts and not its status.
    found=$(grep -l -a -s -F -e "$1" /proc/[0-9]*/environ)
    test -n "$found" || exit 0
    for environ in $found; do
        pid=${environ#/proc/}
        kill -s KILL "${pid%/environ}"
    done
done
