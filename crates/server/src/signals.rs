//! SIGTERM and SIGINT stop the server in good order; a second one ends the process at once.

use crate::server::Handle;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::io::Read;
use std::os::unix::net::UnixStream;

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
