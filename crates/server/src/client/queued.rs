//! The commands queued by MULTI, in blocks of some hundred KiB: a growing queue moves none of its
//! commands, and a dropped queue frees a few blocks, however many commands it has.

use crate::request::Request;

/// Most commands of a block. A longer EXEC is not run on an event loop.
const MOST_COMMANDS: usize = 1_024;

/// From this many bytes of arguments on, another block is begun.
const FULL_BYTES: usize = 512 << 10;

/// Commands, and the bytes of their arguments.
#[derive(Default)]
struct QueueBlock {
    requests: Vec<Request>,
    input: Vec<u8>,
}

/// Commands in their order.
#[derive(Default)]
pub struct QueuedCommands {
    blocks: Vec<QueueBlock>,
    count: usize,
    writes: bool,
    grows: bool,
}

impl QueuedCommands {
    /// Adds a command, whose arguments may be in `input`.
    pub fn push(&mut self, request: Request, input: &[u8]) {
        self.count += 1;
        self.writes |= request.may_write(input);
        self.grows |= request.grows(input);
        let is_full = |block: &QueueBlock| {
            block.requests.len() >= MOST_COMMANDS || block.input.len() >= FULL_BYTES
        };
        if self.blocks.last().is_none_or(is_full) {
            self.blocks.push(QueueBlock::default());
        }
        let block = self.blocks.last_mut().expect("one was added");
        block.requests.push(request.moved_to(&mut block.input, input));
    }

    /// The number of commands.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether work on each command would hold up an event loop.
    pub fn is_long(&self) -> bool {
        self.blocks.len() > 1
    }

    /// Whether `holds` is true for the place of a command.
    pub fn any(&self, holds: impl Fn(usize) -> bool) -> bool {
        let all = self.blocks.iter().flat_map(|block| &block.requests);
        all.filter_map(Request::place).any(holds)
    }

    /// Whether a command may write.
    pub fn writes(&self) -> bool {
        self.writes
    }

    /// Whether a command may use more memory.
    pub fn grows(&self) -> bool {
        self.grows
    }

    /// All commands, and the bytes of their arguments: a single block unchanged, several copied.
    pub fn into_one(self) -> (Vec<Request>, Vec<u8>) {
        let mut blocks = self.blocks.into_iter();
        let Some(QueueBlock { mut requests, mut input }) = blocks.next() else {
            return Default::default();
        };
        let bytes = blocks.as_slice().iter().map(|block| block.input.len()).sum();
        requests.reserve(self.count - requests.len());
        input.reserve(bytes);
        for block in blocks {
            let by = input.len();
            input.extend_from_slice(&block.input);
            requests.extend(block.requests.into_iter().map(|request| request.moved_by(by)));
        }
        (requests, input)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_as_they_were_queued_however_many() {
        let (few, many) = (3, 2 * MOST_COMMANDS + 1);
        for (count, bytes, is_long) in
            [(0, 1, false), (few, 1, false), (few, FULL_BYTES, true), (many, 9, true)]
        {
            let mut queued = QueuedCommands::default();
            for number in 0..count {
                // Requests of a renamed command own their arguments.
                let key = format!("{number}");
                let value = vec![number as u8; bytes];
                let arguments = [b"SET".to_vec(), key.clone().into(), value];
                queued.push(Request::waiting(arguments.into()), b"");
            }
            let told = (queued.len(), queued.is_empty(), queued.is_long());
            assert_eq!(told, (count, count == 0, is_long));
            assert_eq!((queued.writes(), queued.grows()), (count > 0, count > 0));
            let (requests, input) = queued.into_one();
            assert_eq!(requests.len(), count);
            for (number, request) in requests.iter().enumerate() {
                let arguments = request.arguments(&input);
                let key = number.to_string();
                let value = vec![number as u8; bytes];
                assert_eq!(&arguments[..], [&b"SET"[..], key.as_bytes(), &value]);
            }
        }
    }
}
