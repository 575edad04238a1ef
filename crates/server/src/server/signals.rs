//! SIGTERM and SIGINT stop the server in good order; a second one ends the process at once.
//! SIGXFSZ, of a file that would be larger than the process may write, ends nothing.

use crate::server::Handle;
use signal_hook::consts::{SIGINT, SIGTERM, SIGXFSZ};
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// Has a write beyond the limit of a file's size (`ulimit -f`) fail with a reason, which names the
/// file. Without this the system ends the process, and nothing is said.
///
/// # Errors
/// The signal cannot be taken.
pub fn survive_file_limit() -> std::io::Result<()> {
    // It fails whether the signal is ignored or, as here, taken and forgotten.
    signal_hook::flag::register(SIGXFSZ, Arc::default()).map(drop)
}

/// Has the signals stop a server. A thread sleeps until one arrives.
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
            // What was acknowledged is on disk, so this is a crash that loses nothing.
            std::process::exit(1);
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(wait)?;
    Ok(())
}
