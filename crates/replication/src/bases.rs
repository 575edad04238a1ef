//! Answers the questions of members that join: a member's files are a base for others.
//!
//! A list of files keeps them from being removed, and ends some time after its last question.

use crate::base_messages::{BaseAnswer, BaseList, BaseQuestion, HEAD_BYTES, PIECE_BYTES};
use crate::hex::hex;
use crate::service::{LogService, Question};
use hyades_platform::clock;
use hyades_wal::{BaseFiles, Error};
use std::sync::Arc;
use std::sync::mpsc::Receiver;

/// A list ends so long after its last question.
const LIST_NS: u64 = 30_000_000_000;
/// The lists that are there at once, at most: the oldest ends.
const LISTS: usize = 4;
/// The questions answered in one step, at most: a primary has a lease to keep.
const QUESTIONS: usize = 16;

#[derive(Debug)]
struct Listed {
    number: u64,
    files: BaseFiles,
    asked_ns: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct BaseServer {
    service: Arc<dyn LogService>,
    questions: Receiver<Question>,
    lists: Vec<Listed>,
}

impl BaseServer {
    /// Listens for the questions to a node.
    pub fn new(service: Arc<dyn LogService>, node: &str) -> BaseServer {
        let questions = service.questions(node);
        BaseServer { service, questions, lists: Vec::new() }
    }

    /// Ends all lists: the files are about to be another opening's.
    pub fn clear(&mut self) {
        self.lists.clear();
    }

    /// How many lists there are.
    pub fn lists(&self) -> usize {
        self.lists.len()
    }

    /// Answers what was asked. `files`: the files of a base of this member as of now; `None` if the
    /// member has none to give.
    pub fn step(
        &mut self,
        database: Option<[u8; 16]>,
        mut files: impl FnMut() -> Result<Option<BaseFiles>, Error>,
    ) {
        let now = clock::monotonic_ns();
        self.lists.retain(|listed| now.saturating_sub(listed.asked_ns) < LIST_NS);
        for _ in 0..QUESTIONS {
            let Ok(question) = self.questions.try_recv() else { return };
            let Some(asked) = BaseQuestion::decode(question.bytes()) else { continue };
            let answer = match asked {
                BaseQuestion::List { database: of_other } => match database {
                    Some(own) if hex(&own) == of_other => self.list(now, files()),
                    _ => Err("the member has nothing of this database".into()),
                },
                BaseQuestion::Piece { list, file, from, most } => {
                    self.piece(now, (list, file), from, most)
                }
            };
            question.answer(answer.unwrap_or_else(BaseAnswer::Refusal).encode());
        }
    }

    fn list(
        &mut self,
        now: u64,
        files: Result<Option<BaseFiles>, Error>,
    ) -> Result<BaseAnswer, String> {
        let files = files.map_err(|error| error.to_string())?;
        let files = files.ok_or("the member has no base")?;
        if self.lists.len() >= LISTS {
            self.lists.remove(0);
        }
        // Numbers of another process of the node are others.
        let number = fastrand::u64(..1 << 53);
        let list = BaseList { list: number, files: files.list() };
        self.lists.push(Listed { number, files, asked_ns: now });
        Ok(BaseAnswer::List(list))
    }

    fn piece(
        &mut self,
        now: u64,
        (list, file): (u64, usize),
        from: u64,
        most: usize,
    ) -> Result<BaseAnswer, String> {
        let listed = self.lists.iter_mut().find(|listed| listed.number == list);
        let listed = listed.ok_or("the list is gone")?;
        listed.asked_ns = now;
        let most = most.min(piece_bytes(&*self.service));
        let piece = listed.files.read(file, from, most).map_err(|error| error.to_string())?;
        Ok(BaseAnswer::Piece(piece))
    }
}

/// The most bytes of a piece on a service.
pub(crate) fn piece_bytes(service: &dyn LogService) -> usize {
    PIECE_BYTES.min(service.max_message_bytes() - HEAD_BYTES)
}
