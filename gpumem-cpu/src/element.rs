//! The types of elements in memory.

use gpumem_core::Role;

/// The type of a tensor's elements in memory. Every bit pattern is valid.
pub(crate) trait Element: Copy + Send + Sync + 'static {
    /// True if a tensor of this role has elements of this type.
    fn holds(role: Role) -> bool;
}

impl Element for f32 {
    fn holds(role: Role) -> bool {
        !u32::holds(role) && !u8::holds(role)
    }
}

impl Element for u32 {
    fn holds(role: Role) -> bool {
        matches!(role, Role::Index | Role::State)
    }
}

impl Element for u8 {
    fn holds(role: Role) -> bool {
        matches!(role, Role::Byte | Role::Code | Role::Int8 | Role::Nf4 | Role::Nf4Double | Role::Bit)
    }
}
