//! A key and its value, side by side in one piece of memory.

/// See the module.
#[derive(Debug)]
pub(crate) struct Record {
    /// The key, and the value behind it.
    bytes: Box<[u8]>,
    key: u32,
}

impl Record {
    /// A key is no longer than a word of a command, so its length is not cut off.
    pub(crate) fn new(key: &[u8], value: &[u8]) -> Self {
        Self {
            bytes: [key, value].concat().into(),
            key: u32::try_from(key.len()).unwrap_or(u32::MAX),
        }
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.bytes[..self.key as usize]
    }

    pub(crate) fn value(&self) -> &[u8] {
        &self.bytes[self.key as usize..]
    }

    /// Bytes of both.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Puts another value in the place of this one: where it is, if it is as long.
    pub(crate) fn set_value(&mut self, value: &[u8]) {
        let held = &mut self.bytes[self.key as usize..];
        if held.len() == value.len() {
            held.copy_from_slice(value);
        } else {
            *self = Self::new(self.key(), value);
        }
    }

    pub(crate) fn append(&mut self, more: &[u8]) {
        self.bytes = [&self.bytes, more].concat().into();
    }
}
