//! Stands for the descriptor where there is none.

#[derive(Debug, Default)]
pub(crate) struct WakeDescriptor {}

#[expect(clippy::unused_self, reason = "the interface is that of the real one")]
impl WakeDescriptor {
    pub(crate) fn fire(&self) {}
}
