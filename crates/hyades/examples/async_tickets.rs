//! Tickets are futures with wakers and need no async runtime: here a `block_on` of a few lines
//! awaits many transactions at once.
//!
//! `cargo run -p hyades --example async_tickets`

use hyades::{Database, Table, Ticket};
use std::error::Error;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

#[derive(Table)]
struct Event {
    #[key]
    id: i64,
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread and parks the thread during waits.
fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        std::thread::park();
    }
}

/// Awaits all tickets. Returns the number of acknowledged transactions.
async fn all(tickets: Vec<Ticket>) -> Result<usize, hyades::Error> {
    let count = tickets.len();
    for ticket in tickets {
        ticket.await?;
    }
    Ok(count)
}

fn main() -> Result<(), Box<dyn Error>> {
    let temporary = tempfile::tempdir()?;
    let mut builder = Database::builder().streams(2);
    let events = builder.table_of::<Event>();
    let db = builder.open(temporary.path())?;

    // A session does not wait: a transaction is pre-committed and visible to others when `submit`
    // returns, and its ticket tells when the transaction is durable. Here many transactions share
    // an fsync.
    let mut session = db.session()?;
    let mut tickets = Vec::new();
    for id in 0..1000i64 {
        let (_, ticket) = session.submit(|tx| Ok(events.insert(tx, &Event { id })?))?;
        tickets.push(ticket);
    }
    assert_eq!(block_on(all(tickets))?, 1000);

    // The ticket of a reader is acknowledged once the row read is durable.
    let (row, ticket) = session.submit(|tx| Ok(events.get(tx, 999)?))?;
    block_on(ticket)?;
    assert!(row.is_some());
    println!("1000 transactions acknowledged; syncs of the log: {}", db.stats().syncs);
    Ok(())
}
