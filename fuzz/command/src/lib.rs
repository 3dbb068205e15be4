//! The reports of `cargo gpumem` on the bytes of a binary, and such binaries.

pub use cargo_gpumem::reports::{REPORTS, report};

/// Returns an object file with this section of records, which the command can read.
pub fn object(section: &[u8]) -> Vec<u8> {
    use object::write::{Object, StandardSegment};
    use object::{Architecture, BinaryFormat, Endianness, SectionKind};
    let mut file = Object::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
    let segment = file.segment_name(StandardSegment::Data).to_vec();
    let id = file.add_section(segment, b".gpumem".to_vec(), SectionKind::ReadOnlyData);
    file.append_section_data(id, section, 1);
    file.write().unwrap_or_default()
}
