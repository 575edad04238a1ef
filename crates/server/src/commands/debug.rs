//! DEBUG, for test suites. Off unless `enable-debug-command` says otherwise.

use super::{Job, Local, lower};
use crate::data::keyspace::Stop;
use crate::glob;
use crate::resp::reply::Reply;
use std::time::Duration;

pub fn debug(local: &mut Local<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Stop> {
    if !local.shared.settings.debug_is_enabled() {
        let text = "ERR DEBUG command not allowed. If the enable-debug-command option is set to \
                    \"local\", you can run it from a local connection, otherwise you need to set \
                    this option in the configuration file, and then restart the server.";
        return Err(text.into());
    }
    match (lower(args[1]).as_str(), &args[2..]) {
        ("sleep", [seconds]) => {
            let text = String::from_utf8_lossy(seconds);
            let seconds: f64 = text.parse().map_err(|_| "ERR value is not a valid float")?;
            let time = Duration::try_from_secs_f64(seconds).map_err(|_| super::SYNTAX)?;
            // Only this connection sleeps; an executor does it.
            let time = time.min(Duration::from_secs(60));
            *local.job = Some(Job::slow(move |shared, reply| {
                shared.wait_for_stop_at_most(time);
                reply.ok();
            }));
        }
        ("jmap" | "set-active-expire" | "quicklist-packed-threshold", _) => reply.ok(),
        ("stringmatch-len", [length, pattern]) => {
            let text = vec![b'a'; super::numbers::unsigned(length)?.min(1 << 20)];
            reply.integer(i64::from(glob::matches(pattern, &text, false)));
        }
        ("error", [text]) => {
            let text = String::from_utf8_lossy(text).replace(['\r', '\n'], " ");
            return Err(text.into());
        }
        ("protocol", [what]) => protocol(&lower(what), reply)?,
        (other, _) => return Err(format!("ERR DEBUG {other} is not built").into()),
    }
    Ok(())
}

/// A reply of each type.
fn protocol(what: &str, reply: &mut Reply<'_>) -> Result<(), Stop> {
    match what {
        "string" => reply.bulk(b"Hello World"),
        "integer" => reply.integer(12_345),
        "double" => reply.double(2.5),
        "null" => reply.null(),
        "array" => {
            reply.array(3);
            (0..3).for_each(|n| reply.integer(n));
        }
        "set" => {
            reply.set(3);
            (0..3).for_each(|n| reply.integer(n));
        }
        "map" => {
            reply.map(3);
            for n in 0..3 {
                reply.integer(n);
                reply.boolean(n == 1);
            }
        }
        "attrib" => {
            if reply.is_resp3() {
                reply.attribute(1);
                reply.bulk(b"key-popularity");
                reply.array(2);
                reply.bulk(b"key:123");
                reply.integer(90);
            }
            reply.bulk(b"Some real reply following the attribute");
        }
        "bignum" => reply.big_number("1234567999999999999999999999999999999"),
        "true" => reply.boolean(true),
        "false" => reply.boolean(false),
        "verbatim" => reply.verbatim("This is a verbatim\nstring"),
        _ => return Err("ERR Wrong protocol type name".into()),
    }
    Ok(())
}
