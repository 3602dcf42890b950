//! What the fuzz targets do: each takes operations and bytes of any kind, and holds the real thing to a plain model of it.

mod moment;
pub mod shard;
pub mod wheel;
