//! Small things about sockets that do not block.

use std::io::{self, ErrorKind};

/// A poll that a signal has interrupted found nothing; that is no error.
pub(crate) fn unless_interrupted(polled: io::Result<()>) -> io::Result<()> {
    match polled {
        Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
        polled => polled,
    }
}

/// Errors of accepting that say something about that one connection only.
pub(crate) fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted)
}
