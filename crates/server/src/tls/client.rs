//! The side of a client with a single request.

use super::files::{certificates, private_key};
use crate::config::PingTls;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    Stream,
};
use std::io::{Read, Write};
use std::sync::Arc;

/// Accepts any certificate of a server; bytes on the connection are encrypted for the server's key.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// The configuration of a client.
fn configuration(how: &PingTls) -> Result<ClientConfig, String> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let builder = match &how.authorities {
        _ if how.takes_any => {
            let verifier = Arc::new(AnyCertificate(provider));
            builder.dangerous().with_custom_certificate_verifier(verifier)
        }
        Some(file) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates("--cacert", file)? {
                let wrong = |error| format!("--cacert {} cannot be used: {error}", file.display());
                roots.add(certificate).map_err(wrong)?;
            }
            builder.with_root_certificates(roots)
        }
        None => {
            return Err("which authority signs its certificate is not said: name the \
                        authority's file with --cacert, or take any certificate with --insecure"
                .to_string());
        }
    };
    match &how.certificate {
        None => Ok(builder.with_no_client_auth()),
        Some((certificate, key)) => {
            let chain = certificates("--cert", certificate)?;
            let own = builder.with_client_auth_cert(chain, private_key("--key", key)?);
            own.map_err(|error| {
                let (certificate, key) = (certificate.display(), key.display());
                format!("--cert {certificate} and --key {key} cannot be used: {error}")
            })
        }
    }
}

/// The encryption of a connection to a server.
pub struct TlsClient(ClientConnection);

impl TlsClient {
    /// The TLS client of a connection to this host.
    ///
    /// # Errors
    /// A file has a wrong content, or no certificate can name the host.
    pub fn new(host: &str, how: &PingTls) -> Result<TlsClient, String> {
        let name = ServerName::try_from(host.to_string());
        let name = name.map_err(|_| format!("{host:?} is no name that a certificate can have"))?;
        let connection = ClientConnection::new(Arc::new(configuration(how)?), name);
        Ok(TlsClient(connection.map_err(|error| error.to_string())?))
    }

    /// Sends bytes to the server at the other end of a socket, and reads an answer of this length.
    ///
    /// # Errors
    /// The connection ends before, or the certificate of the server is not to be trusted.
    pub fn exchange(
        &mut self,
        socket: &mut (impl Read + Write),
        asked: &[u8],
        answer: &mut [u8],
    ) -> std::io::Result<()> {
        let mut stream = Stream::new(&mut self.0, socket);
        stream.write_all(asked)?;
        stream.read_exact(answer)?;
        self.0.send_close_notify();
        // The answer is there, whether the server hears the end or not.
        let _ = self.0.write_tls(socket);
        Ok(())
    }
}
