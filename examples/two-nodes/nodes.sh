#!/bin/sh
# Several real nodes on one machine: each has a network namespace, a containerd, `haru node` and `haru proxy` of its own.
#
#   nodes.sh network            the namespaces and the network between them and this machine
#   nodes.sh up KUBECONFIG CA   the nodes, once the API server runs at the machine's address in that network
#   nodes.sh ctr NODE ARG…      containerd's client on one node, for example: images import FILE
#   nodes.sh enter NODE COMMAND…
#   nodes.sh down               ends everything and removes it
#
# Variables: NODES (names; default "node-1 node-2"), SUBNET (two bytes of an address that nothing else has; default 10.89),
# STATE (a directory), PREFIX (of namespaces and links, at most 8 letters), SANDBOX_IMAGE, HARU (the command), DNS.
# The machine is SUBNET.0.1, the nodes are SUBNET.0.11 and so on, their pods SUBNET.129.0/24 and so on.
set -eu

NODES=${NODES:-"node-1 node-2"} SUBNET=${SUBNET:-10.89} PREFIX=${PREFIX:-haru} HARU=${HARU:-haru} DNS=${DNS:-}
STATE=${STATE:-/var/lib/haru/nodes} SANDBOX_IMAGE=${SANDBOX_IMAGE:-}
CNI=${CNI:-/usr/lib/cni}
SWITCH=$PREFIX-switch

each() { # FUNCTION ARG…: call it for each node with its number and name in $number and $node
    number=0
    for node in $NODES; do
        number=$((number + 1))
        "$@"
    done
}

# -- the network: a switch in a namespace of its own, so that rules of this machine do not touch what passes through it

network() {
    ip netns add "$SWITCH"
    ip -n "$SWITCH" link add switch up type bridge
    plug "$PREFIX-up" "" "$SUBNET.0.1"
    each node_network
}

plug() { # LINK NAMESPACE ADDRESS: a cable from the switch to a namespace ("": this machine's)
    ip link add "$1" type veth peer name "to-$1" netns "$SWITCH"
    ip -n "$SWITCH" link set "to-$1" master switch up
    ${2:+ip link set "$1" netns "$2"}
    ip ${2:+-n "$2"} addr add "$3/17" dev "$1"
    ip ${2:+-n "$2"} link set "$1" up
}

node_network() {
    space=$PREFIX-$node
    ip netns add "$space"
    ip -n "$space" link set lo up
    plug "$PREFIX-n$number" "$space" "$SUBNET.0.$((10 + number))"
    ip -n "$space" route add default via "$SUBNET.0.1"
    within sysctl -qw net.ipv4.ip_forward=1
    ip route add "$SUBNET.$((128 + number)).0/24" via "$SUBNET.0.$((10 + number))"
    own=$number
    other=0
    for _ in $NODES; do
        other=$((other + 1))
        [ $other = $own ] || ip -n "$space" route add "$SUBNET.$((128 + other)).0/24" via "$SUBNET.0.$((10 + other))"
    done
}

within() { # COMMAND…: in the network of the node. Mounts are this machine's, which containerd needs after a restart
    nsenter "--net=/run/netns/$PREFIX-$node" "$@"
}

# -- the nodes

up() {
    KUBECONFIG=$(realpath "$1") CA=$(realpath "$2")
    each node_files
    each node_runtime
    each node_agents
}

node_files() {
    dir=$STATE/$node
    mkdir -p "$dir/net.d" "$dir/cni"
    for plugin in ptp host-local portmap loopback; do ln -sf "$CNI/$plugin" "$dir/cni/$plugin"; done
    cat >"$dir/net.d/10-pods.conflist" <<END
{"cniVersion": "0.4.0", "name": "$PREFIX-$node", "plugins": [
  {"type": "ptp", "ipam": {"type": "host-local", "dataDir": "$dir/addresses",
   "ranges": [[{"subnet": "$SUBNET.$((128 + number)).0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
END
    sandbox=
    [ -z "$SANDBOX_IMAGE" ] || sandbox="  sandbox_image = \"$SANDBOX_IMAGE\""
    cat >"$dir/containerd.toml" <<END
version = 2
root = "$dir/containerd"
state = "$dir/run"
[grpc]
  address = "$dir/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "$dir/opt"
[plugins."io.containerd.grpc.v1.cri"]
  netns_mounts_under_state_dir = true
  # For a machine that is a container or a small virtual machine itself.
  restrict_oom_score_adj = true
  disable_apparmor = true
  disable_hugetlb_controller = true
  tolerate_missing_hugetlb_controller = true
$sandbox
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "$dir/cni"
    conf_dir = "$dir/net.d"
END
}

node_runtime() {
    start containerd containerd -c "$STATE/$node/containerd.toml"
    for _ in $(seq 300); do
        timeout 5 ctr -a "$STATE/$node/containerd.sock" version >/dev/null 2>&1 && return
        kill -0 "$(cat "$STATE/$node/containerd.pid")" || break
        sleep 0.1
    done
    tail "$STATE/$node/containerd.log" >&2
    exit 1
}

node_agents() {
    dir=$STATE/$node
    start node $HARU node --kubeconfig "$KUBECONFIG" --hostname-override "$node" --node-ip "$SUBNET.0.$((10 + number))" \
        --container-runtime-endpoint "unix://$dir/containerd.sock" --root-dir "$dir/pods" --pod-logs-dir "$dir/logs" \
        --cgroup-root "/$PREFIX-$node" --client-ca-file "$CA" ${DNS:+--cluster-dns "$DNS"} ${NODE_FLAGS:-}
    start proxy $HARU proxy --kubeconfig "$KUBECONFIG" --hostname-override "$node" --cluster-cidr "$SUBNET.128.0/17"
}

start() { # NAME COMMAND…: in the background under the node's host name, with a log and the id of its process
    name=$1
    shift
    # shellcheck disable=SC2016
    nsenter "--net=/run/netns/$PREFIX-$node" setsid unshare --uts \
        sh -c 'echo "$0" >/proc/sys/kernel/hostname && exec "$@"' "$node" "$@" >"$STATE/$node/$name.log" 2>&1 &
    echo $! >"$STATE/$node/$name.pid"
}

ctr() {
    node=$1
    shift
    command ctr -a "$STATE/$node/containerd.sock" -n k8s.io "$@"
}

# -- the end

down() {
    each node_down
    ip netns del "$SWITCH" 2>/dev/null || true
    ip link del "$PREFIX-up" 2>/dev/null || true
}

node_down() {
    dir=$STATE/$node
    for name in proxy node; do end $name; done
    if [ -S "$dir/containerd.sock" ]; then
        for id in $(ctr "$node" tasks ls -q); do ctr "$node" tasks kill -s KILL "$id" || true; done
        for id in $(ctr "$node" containers ls -q); do
            ctr "$node" tasks rm -f "$id" >/dev/null 2>&1 || true
            ctr "$node" containers rm "$id" >/dev/null 2>&1 || true
        done
    fi
    end containerd
    for process in $(ps -eo pid=,args= | awk -v dir="$dir/" '/[c]ontainerd-shim/ && index($0, dir) {print $1}'); do
        kill -9 "$process"
    done
    awk -v dir="$dir/" 'index($2, dir) == 1 {print $2}' /proc/self/mounts | sort -r | while read -r mount; do
        umount -l "$mount"
    done
    ip netns del "$PREFIX-$node" 2>/dev/null || true
    find /sys/fs/cgroup -depth -type d -path "*/$PREFIX-$node*" -exec rmdir {} + 2>/dev/null || true
    rm -rf "$dir"
}

end() { # NAME
    [ -f "$STATE/$node/$1.pid" ] || return 0
    process=$(cat "$STATE/$node/$1.pid")
    kill "$process" 2>/dev/null || return 0
    for _ in $(seq 100); do
        kill -0 "$process" 2>/dev/null || return 0
        sleep 0.1
    done
    kill -9 "$process"
}

verb=${1:-}
case $verb in
network | down) "$verb" ;;
up) shift && up "$@" ;;
ctr) shift && ctr "$@" ;;
enter) shift && node=$1 && shift && within "$@" ;;
*) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2 && exit 2 ;;
esac
