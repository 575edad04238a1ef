//! SIGTERM and SIGINT stop the server in good order; a second signal ends the process at once.
//! SIGXFSZ, for a file larger than the process may write, ends nothing.

use crate::server::Handle;
use signal_hook::consts::{SIGINT, SIGTERM, SIGXFSZ};
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// Makes a write beyond the limit of a file's size (`ulimit -f`) fail with an error that names the
/// file. Otherwise the system ends the process without a message.
///
/// # Errors
/// The signal cannot be taken.
pub fn survive_file_limit() -> std::io::Result<()> {
    // The write fails whether the signal is ignored or, as here, taken and dropped.
    signal_hook::flag::register(SIGXFSZ, Arc::default()).map(drop)
}

/// Makes the signals stop a server. A thread sleeps until a signal arrives.
pub fn stop_on_signals(handle: Handle) -> std::io::Result<()> {
    let (mut read, write) = UnixStream::pair()?;
    for signal in [SIGTERM, SIGINT] {
        signal_hook::low_level::pipe::register(signal, write.try_clone()?)?;
    }
    let wait = move || {
        let mut byte = [0];
        if read.read_exact(&mut byte).is_ok() {
            handle.stop();
        }
        if read.read_exact(&mut byte).is_ok() {
            // Acknowledged changes are on disk, so the exit is a crash without loss.
            std::process::exit(1);
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(wait)?;
    Ok(())
}
