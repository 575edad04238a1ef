//! Fetches a base from another member: the list of its files, then the files in pieces, some of
//! which are under way at once.

use crate::base_messages::{BaseAnswer, BaseQuestion};
use crate::bases::piece_bytes;
use crate::hex::hex;
use crate::service::{LogService, Reply, Request, RequestId};
use hyades_platform::clock;
use hyades_wal::{BaseWriter, Error, LogOptions};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// The pieces under way at once.
const WINDOW: usize = 8;
/// How often a question is asked that is not answered.
const TRIES: u32 = 4;
/// How soon answers are looked for again.
const LOOK_NS: u64 = 500_000;

/// How far a fetch is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fetched {
    GoesOn,
    /// The member's files are the base's.
    Done,
    /// The member that was asked gives no base, and why.
    Failed(String),
}

/// A question under way.
#[derive(Debug)]
struct Piece {
    file: usize,
    from: u64,
    tries: u32,
    request: RequestId,
}

#[derive(Debug)]
struct Arriving {
    list: u64,
    writer: BaseWriter,
    /// The next file and offset to ask for.
    next: (usize, u64),
    pieces: VecDeque<Piece>,
}

#[derive(Debug)]
enum FetchState {
    Listing { tries: u32, request: RequestId },
    Arriving(Box<Arriving>),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct BaseFetch {
    service: Arc<dyn LogService>,
    /// The node that is asked.
    node: String,
    database: [u8; 16],
    /// Of the directories that the base is for.
    options: LogOptions,
    state: FetchState,
}

fn ask(service: &dyn LogService, node: &str, question: &BaseQuestion) -> RequestId {
    let question = Arc::new(question.encode());
    service.begin(Request::Ask { node: node.to_owned(), question })
}

impl BaseFetch {
    /// Begins to fetch a base of a database from a node, for the options' directories.
    pub fn begin(
        service: Arc<dyn LogService>,
        node: &str,
        database: [u8; 16],
        options: LogOptions,
    ) -> BaseFetch {
        let request = ask(&*service, node, &BaseQuestion::List { database: hex(&database) });
        let state = FetchState::Listing { tries: 1, request };
        BaseFetch { service, node: node.to_owned(), database, options, state }
    }

    /// The node that is asked.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// Goes on for about as long as `wait`.
    ///
    /// # Errors
    /// The files could not be written.
    pub fn step(&mut self, wait: Duration) -> Result<Fetched, Error> {
        let until = clock::monotonic_ns() + wait.as_nanos() as u64;
        loop {
            let fetched = match &self.state {
                FetchState::Listing { .. } => self.step_list()?,
                FetchState::Arriving(_) => self.step_pieces()?,
            };
            let now = clock::monotonic_ns();
            if fetched != Fetched::GoesOn || now >= until {
                return Ok(fetched);
            }
            clock::sleep_until(until.min(now + LOOK_NS));
        }
    }

    fn step_list(&mut self) -> Result<Fetched, Error> {
        let FetchState::Listing { tries, request } = &mut self.state else {
            return Ok(Fetched::GoesOn);
        };
        let told = match self.service.answer(*request, false) {
            None => return Ok(Fetched::GoesOn),
            Some(Reply::Told(told)) => BaseAnswer::decode(&told),
            Some(_) => None,
        };
        match told {
            Some(BaseAnswer::List(list)) => {
                let writer = BaseWriter::begin(self.options.clone(), list.files)?;
                let (list, next, pieces) = (list.list, (0, 0), VecDeque::new());
                let arriving = Arriving { list, writer, next, pieces };
                self.state = FetchState::Arriving(Box::new(arriving));
            }
            Some(BaseAnswer::Refusal(why)) => return Ok(Fetched::Failed(why)),
            _ if *tries >= TRIES => return Ok(Fetched::Failed("no answer came".into())),
            _ => {
                let question = BaseQuestion::List { database: hex(&self.database) };
                *request = ask(&*self.service, &self.node, &question);
                *tries += 1;
            }
        }
        Ok(Fetched::GoesOn)
    }

    fn step_pieces(&mut self) -> Result<Fetched, Error> {
        let FetchState::Arriving(arriving) = &mut self.state else { return Ok(Fetched::GoesOn) };
        let (service, node) = (&*self.service, &*self.node);
        arriving.ask_ahead(service, node);
        while let Some(piece) = arriving.pieces.front_mut() {
            let told = match service.answer(piece.request, false) {
                None => return Ok(Fetched::GoesOn),
                Some(Reply::Told(told)) => BaseAnswer::decode(&told),
                Some(_) => None,
            };
            match told {
                Some(BaseAnswer::Piece(bytes)) => {
                    if arriving.writer.awaits()? != Some((piece.file, piece.from)) {
                        return Ok(Fetched::Failed("a piece came with other bytes".into()));
                    }
                    arriving.writer.write(&bytes)?;
                    arriving.pieces.pop_front();
                    arriving.ask_ahead(service, node);
                }
                Some(BaseAnswer::Refusal(why)) => return Ok(Fetched::Failed(why)),
                _ if piece.tries >= TRIES => {
                    return Ok(Fetched::Failed("no answer came".into()));
                }
                _ => {
                    piece.tries += 1;
                    let length = arriving.writer.files()[piece.file].1;
                    let question =
                        piece_question(service, arriving.list, (piece.file, piece.from), length);
                    piece.request = ask(service, node, &question);
                }
            }
        }
        self.finish()
    }

    /// All pieces are written.
    fn finish(&mut self) -> Result<Fetched, Error> {
        let request = RequestId(0);
        let state = std::mem::replace(&mut self.state, FetchState::Listing { tries: 0, request });
        if let FetchState::Arriving(arriving) = state {
            arriving.writer.finish()?;
        }
        Ok(Fetched::Done)
    }
}

fn piece_question(
    service: &dyn LogService,
    list: u64,
    (file, from): (usize, u64),
    length: u64,
) -> BaseQuestion {
    let most = (piece_bytes(service) as u64).min(length - from) as usize;
    BaseQuestion::Piece { list, file, from, most }
}

impl Arriving {
    /// Asks for the next pieces.
    fn ask_ahead(&mut self, service: &dyn LogService, node: &str) {
        while self.pieces.len() < WINDOW
            && let Some((_, length)) = self.writer.files().get(self.next.0)
        {
            let (file, from) = self.next;
            let step = (piece_bytes(service) as u64).min(length - from);
            self.next = if from + step < *length { (file, from + step) } else { (file + 1, 0) };
            if step > 0 {
                let question = piece_question(service, self.list, (file, from), *length);
                let request = ask(service, node, &question);
                self.pieces.push_back(Piece { file, from, tries: 1, request });
            }
        }
    }
}
