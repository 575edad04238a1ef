//! The commands of Redis that are not built, and what a client is told instead.

/// What is missing, and the commands that need it.
const MISSING: &[(&str, &str)] = &[
    (
        "streams are not built yet",
        "xack xadd xautoclaim xclaim xdel xgroup xinfo xlen xpending \
      xrange xread xreadgroup xrevrange xsetid xtrim",
    ),
    (
        "geo indexes are not built yet",
        "geoadd geodist geohash geopos georadius \
      georadiusbymember georadiusbymember_ro georadius_ro geosearch geosearchstore",
    ),
    ("HyperLogLog is not built yet", "pfadd pfcount pfdebug pfmerge pfselftest"),
    (
        "scripts are not built yet: send several commands at once, they are one transaction",
        "eval \
      evalsha evalsha_ro eval_ro fcall fcall_ro script",
    ),
    ("values have no serialized form yet: COPY copies them", "dump restore restore-asking"),
    ("MONITOR is not built yet", "monitor"),
    ("the slow log is not built yet", "slowlog"),
    ("latency monitoring is not built yet: see INFO", "latency"),
    ("there is no cluster mode: one server uses all cores", "asking cluster readonly readwrite"),
    ("replication is not built", "failover psync replconf replicaof slaveof sync waitaof"),
    ("MIGRATE is not built: copy the keys with a client", "migrate"),
    ("modules cannot be loaded", "module"),
];

/// What is missing for a command of Redis; `None` if Redis has no such command either.
pub fn reason(name: &str) -> Option<&'static str> {
    let has = |names: &str| names.split_whitespace().any(|of| of == name);
    MISSING.iter().find(|(_, names)| has(names)).map(|(reason, _)| *reason)
}

/// The error for a command that is not in the table.
pub fn error(args: &[&[u8]]) -> String {
    let name = String::from_utf8_lossy(&args[0][..args[0].len().min(128)]).into_owned();
    if let Some(reason) = reason(&name.to_ascii_lowercase()) {
        return format!("ERR command '{name}' is not supported: {reason}");
    }
    let mut text = format!("ERR unknown command '{name}', with args beginning with: ");
    for arg in &args[1..] {
        if text.len() > 256 {
            break;
        }
        let arg = String::from_utf8_lossy(&arg[..arg.len().min(128)]);
        text.push_str(&format!("'{arg}' "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::table;
    use super::*;

    #[test]
    fn a_command_is_built_or_missing() {
        for command in table::all() {
            assert_eq!(reason(command.name), None, "{}", command.name);
        }
        assert_eq!(
            error(&[b"PFADD"]),
            "ERR command 'PFADD' is not supported: HyperLogLog is not built yet"
        );
        assert_eq!(
            error(&[b"foo", b"a", b"b"]),
            "ERR unknown command 'foo', with args beginning with: 'a' 'b' "
        );
    }
}
