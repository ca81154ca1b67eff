#!/bin/bash
# A real S3 server of other people on loopback, for the contract tests: Ceph RGW with one monitor and one store in
# a file, without authentication between its parts. Needs Debian's packages radosgw, ceph-mon, ceph-osd, ceph-common.
#
# Usage: ceph-rgw.sh DIR PORT MON_PORT     ready in about 20 s; keys testkey / testsecret.
# Stop it by the process ids in DIR/ceph/run/*.pid (tests/contract/run_rgw does).
set -eu
D=$(realpath -m "${1:?folder}")/ceph PORT=${2:?port} MON=${3:?port of the monitor}
[ -e "$D" ] && { echo "$D exists already" >&2; exit 1; }
mkdir -p "$D"/{mon,osd,rgw,run,log}
FSID=11111111-2222-3333-4444-555555555555
cat > "$D/ceph.conf" <<C
[global]
fsid = $FSID
mon_host = [v1:127.0.0.1:$MON]
mon_initial_members = a
public_network = 127.0.0.0/8
ms_bind_msgr2 = false
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
mon_allow_pool_size_one = true
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 8
osd_crush_chooseleaf_type = 0
osd_pool_default_pg_autoscale_mode = off
mon_warn_on_pool_no_redundancy = false
mon_data_avail_crit = 1
run_dir = $D/run
log_file = $D/log/\$name.log
admin_socket = $D/run/\$name.asok
[mon.a]
mon_data = $D/mon
[osd.0]
osd_data = $D/osd
osd_objectstore = bluestore
bluestore_block_size = 4294967296
osd_memory_target = 939524096
[client.rgw]
rgw_data = $D/rgw
rgw_frontends = beast endpoint=127.0.0.1:$PORT
rgw_thread_pool_size = 64
C
export CEPH_CONF=$D/ceph.conf
monmaptool --create --fsid $FSID --addv a "[v1:127.0.0.1:$MON]" "$D/monmap"
ceph-mon -i a --mkfs --monmap "$D/monmap" -c "$CEPH_CONF"
ceph-mon -i a -c "$CEPH_CONF" --pid-file "$D/run/mon.pid"
# It refuses commands (EPERM) until it has formed its quorum of one.
for _ in $(seq 40); do
  timeout 20 ceph -c "$CEPH_CONF" mon stat > /dev/null 2>&1 && break
  sleep 0.5
done
UUID=aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee
timeout 60 ceph -c "$CEPH_CONF" osd new $UUID 0
ceph-osd -i 0 -c "$CEPH_CONF" --mkfs --osd-uuid $UUID
timeout 60 ceph -c "$CEPH_CONF" osd crush add osd.0 1.0 root=default
# On a busy machine the store may ask its monitor before it has the monitor's map, and end with "wrong fsid".
for attempt in 1 2 3 4 5; do
  ceph-osd -i 0 -c "$CEPH_CONF" --pid-file "$D/run/osd.pid" && break
  [ "$attempt" -lt 5 ] || exit 1
  sleep 1
done
for _ in $(seq 60); do
  timeout 20 ceph -c "$CEPH_CONF" osd stat 2>/dev/null | grep -q '1 up' && break
  sleep 1
done
timeout 120 radosgw-admin -c "$CEPH_CONF" user create --uid=t --display-name=t --access-key=testkey --secret=testsecret > "$D/log/user.json"
radosgw -n client.rgw -c "$CEPH_CONF" --pid-file "$D/run/rgw.pid"
for _ in $(seq 100); do
  (exec 3<> "/dev/tcp/127.0.0.1/$PORT") 2>/dev/null && { echo "ready http://127.0.0.1:$PORT"; exit 0; }
  sleep 0.3
done
echo "Ceph RGW did not open port $PORT; its log is $D/log" >&2
exit 1
