//! `hyades dc`: serves the data of a transaction component over TCP.

use clap::Args;
use hyades_cli::data_place::DataPlace;
use hyades_cli::failure::Failure;
use hyades_deuteronomy_remote::DataServer;
use std::io::Write;
use std::sync::Arc;

/// Options of `hyades dc`.
#[derive(Args, Clone, Debug)]
pub struct DcOptions {
    /// The data, as in redb:FILE; made if there are none
    #[arg(value_name = "KIND:PATH")]
    data: DataPlace,
    /// The address to listen at, within a trusted network: nothing is encrypted, and there is no
    /// password; port 0 takes a free one
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7379")]
    listen: String,
}

/// Runs `hyades dc`, until the process is killed. The client gives the next process the operations
/// that were not stable.
///
/// # Errors
/// The data cannot be opened, or the address not be listened at.
pub fn dc(options: &DcOptions) -> Result<bool, Failure> {
    let data = options.data.open_or_make()?;
    let server = DataServer::start(&*options.listen, Arc::from(data));
    let server = server.map_err(Failure::doing(format!("cannot listen at {}", options.listen)))?;
    let _ = writeln!(std::io::stdout(), "ready on {}", server.address());
    let _ = std::io::stdout().flush();
    loop {
        std::thread::park();
    }
}
