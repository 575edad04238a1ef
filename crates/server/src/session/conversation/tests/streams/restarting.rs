//! Streams with groups over restarts and crashes.

use super::super::large::{collect, reopened};
use super::super::migrating_safely::after_crash;
use super::*;

const FULL: &str = "XINFO STREAM s FULL COUNT 0\r\n";

#[test]
fn a_stream_is_whole_after_a_restart() {
    let mut house = House::new(false);
    let mut client = house.client();
    for at in 1..=700 {
        house.say(&mut client, format!("XADD s {at}-1 field {at} more value\r\n").as_bytes());
    }
    let text = "XGROUP CREATE s g 0\r\nXREADGROUP GROUP g alice COUNT 300 STREAMS s >\r\n\
                XREADGROUP GROUP g bob STREAMS s >\r\nXACK s g 1-1 400-1 401-1\r\n\
                XCLAIM s g carol 0 2-1 500-1\r\nXDEL s 10-1 600-1\r\nXTRIM s MAXLEN 640\r\n";
    house.say(&mut client, text.as_bytes());
    let before = house.say(&mut client, FULL.as_bytes());
    let mut house = reopened(house);
    let mut client = house.client();
    assert_eq!(house.say(&mut client, FULL.as_bytes()), before);
    assert_eq!(house.say(&mut client, b"XADD s 700-* a 1\r\n"), "$5 700-2 ");
    assert_eq!(house.say(&mut client, b"DEL s\r\n"), ":1 ");
    let mut house = reopened(house);
    collect(&mut house);
}

/// The commands of a connection, on a stream and a group.
fn commands() -> Vec<String> {
    let mut rng = fastrand::Rng::with_seed(7);
    let mut all = vec!["XGROUP CREATE s g 0 MKSTREAM".to_string()];
    for at in 1..=400 {
        all.push(match rng.u8(..8) {
            0 => format!("XREADGROUP GROUP g c{} COUNT 20 STREAMS s >", rng.u8(..3)),
            1 => format!("XACK s g {} {}", rng.u32(1..at + 1), rng.u32(1..at + 1)),
            2 => format!("XDEL s {}", rng.u32(1..at + 1)),
            3 => format!("XTRIM s MAXLEN {}", rng.u32(50..300)),
            4 => format!("XCLAIM s g c{} 0 {}", rng.u8(..3), rng.u32(1..at + 1)),
            _ => format!("XADD s {at} field value:{at}"),
        });
    }
    all
}

/// The state without times.
const STATE: &str = "MULTI\r\nXRANGE s - +\r\nXPENDING s g\r\nXINFO GROUPS s\r\nEXEC";

/// A crash leaves the state after a command, and nothing acknowledged is lost.
#[test]
fn a_crash_leaves_a_prefix() {
    let commands = commands();
    let mut model = House::new(false);
    let mut client = model.client();
    let mut states = Vec::new();
    for line in &commands {
        model.say(&mut client, format!("{line}\r\n").as_bytes());
        states.push(model.say(&mut client, format!("{STATE}\r\n").as_bytes()));
    }
    let mut house = House::new(true);
    let mut client = house.client();
    let path = house._dir.as_ref().unwrap().path().to_path_buf();
    let mut least = 0;
    for (at, line) in commands.iter().enumerate() {
        client.feed(format!("{line}\r\n").as_bytes());
        house.run(&mut client, 0);
        if at % 20 == 19 {
            let Opened { database, .. } = house.shared.store.opened.cloned();
            let log = database.log().unwrap();
            let _written = log.step(at % 2);
            take(&mut client);
            let found = after_crash(&path, STATE);
            let index = states[..=at].iter().rposition(|state| *state == found);
            // Before the first command is on disk there is no stream.
            let index = index.map_or(0, |index| index + 1);
            assert!(index >= least && (index > 0 || found.contains("NOGROUP")), "{at}: {found}");
            least = index;
        }
        if at % 60 == 59 {
            house.write_log();
            house.queue.drain(|(_, mark)| client.acknowledged(mark)).unwrap();
            take(&mut client);
            assert_eq!(after_crash(&path, STATE), states[at], "{at}: {line}");
            least = at + 1;
        }
    }
}
