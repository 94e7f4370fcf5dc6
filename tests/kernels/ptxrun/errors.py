"""What running a kernel can fail with."""


class PtxError(Exception):
    """The kernel did something wrong."""


class Unsupported(PtxError):
    """The kernel uses something that ptxrun does not implement."""
