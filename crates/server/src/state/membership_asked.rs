//! What a request asks of the data, for its admission by the role of the server.

use crate::catalogue::{BLOCKS, Command, names};

/// What a request on data asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// To read.
    Read,
    /// To write.
    Write,
    /// To wait for a write of another client.
    Wait,
    /// To compare later what is read now.
    Watch,
}

impl Demand {
    /// What the request of a command, at its place in the catalogue, asks for.
    pub fn of(command: &Command, place: usize, args: &[&[u8]]) -> Demand {
        if names::writes(place, args) {
            return Demand::Write;
        }
        let blocks = || {
            let options = args.iter().skip(1);
            let mut options = options.take_while(|word| !word.eq_ignore_ascii_case(b"streams"));
            // XREAD alone is a reading command that may wait, and waits if asked to.
            command.name != "xread" || options.any(|word| word.eq_ignore_ascii_case(b"block"))
        };
        match command.name {
            "watch" => Demand::Watch,
            _ if command.has(BLOCKS) && blocks() => Demand::Wait,
            _ => Demand::Read,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue;

    #[test]
    fn a_request_asks_for_what_its_command_does() {
        let asked = |line: &str| {
            let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            let place = catalogue::find(args[0]).unwrap();
            Demand::of(&catalogue::all()[place], place, &args)
        };
        assert_eq!(asked("GET a"), Demand::Read);
        assert_eq!(asked("SET a b"), Demand::Write);
        assert_eq!(asked("BLPOP a 0"), Demand::Write);
        assert_eq!(asked("XREAD COUNT 1 STREAMS block 0"), Demand::Read);
        assert_eq!(asked("xread block 5 streams a 0"), Demand::Wait);
        assert_eq!(asked("WATCH a"), Demand::Watch);
        assert_eq!(asked("UNWATCH"), Demand::Read);
        assert_eq!(asked("EVAL x 0"), Demand::Read);
        assert_eq!(asked("FUNCTION LIST"), Demand::Read);
        assert_eq!(asked("FUNCTION FLUSH"), Demand::Write);
    }
}
