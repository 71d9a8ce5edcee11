"""Encoding: values to bytes and back, as trees of chunks, compressed, hashed and, with a key, encrypted.

Words. A *plain value* is what MessagePack can say; any other type is an extension with a code of its own. A *chunk* is
a piece of bytes under its hash; a *leaf* holds bytes, a *node* lists literals and references. A *rope* is a long list
as groups of items, a *cut* one leaf of a blob. A *memo* is what one encoding leaves behind so that the next costs what
changed. *Plain form* (`plain`) is for people and JSON, one way only.

Order of work. `Packer` (`values`, `types`) packs a value; `SectionEncoder` (`section`) makes ropes of long lists and
cuts of the rest; `ChunkWriter` (`chunks`) names, deduplicates and compresses; a `Vault` (`encrypt`) encrypts. Reading
goes the other way, and verifies the hash of each chunk before its bytes are used.

Invariants. What is restored equals what went in, or saving fails and names the path. Decoding builds plain data and
registered classes and calls nothing else: nothing is pickled, and nothing is imported because data names it. The shape
of a tree follows from its content alone, so equal parts are stored once. A memo may be dropped at any time.

Refused: a value that could not be restored equal (`ValueRefused`), an unregistered type in stored data
(`UnknownType`), bytes with anything after the value or a key twice (`surplus`), a chunk that would take memory out of
proportion to its size (`footprint`), a document that is too large, too deep, or not a regular file (`documents`).

Which file for which change
    a new type of value             values (built in) or types (registered by a program)
    what a section costs            section, rope, cuts; compression: compress
    the tree format                 tree; docs/FORMAT.md has its bytes
    keys and encryption             encrypt; the slots of a store are store/keys.py
    reading JSON or YAML files      documents: the only reader for files that anybody may have written
"""
