"""The functions of the CUDA runtime, by what they are for: their names, and why the stand-in lacks some.

The names are those of CUDA 12.9 to 13.5. docs/cuda-runtime.md lists them."""

from __future__ import annotations

AREAS = {
    "device": (
        "cudaDeviceReset cudaDeviceSynchronize cudaDeviceSetLimit cudaDeviceGetLimit "
        "cudaDeviceGetCacheConfig cudaDeviceGetStreamPriorityRange cudaDeviceSetCacheConfig "
        "cudaDeviceGetByPCIBusId cudaDeviceGetPCIBusId cudaGetDeviceCount cudaGetDeviceProperties "
        "cudaDeviceGetAttribute cudaChooseDevice cudaInitDevice cudaSetDevice cudaGetDevice "
        "cudaSetValidDevices cudaSetDeviceFlags cudaGetDeviceFlags cudaDriverGetVersion "
        "cudaRuntimeGetVersion cudaThreadExit cudaThreadSynchronize cudaThreadSetLimit "
        "cudaThreadGetLimit cudaThreadGetCacheConfig cudaThreadSetCacheConfig cudaSetDoubleForDevice "
        "cudaDeviceGetSharedMemConfig cudaDeviceSetSharedMemConfig cudaSetDoubleForHost "
        "cudaProfilerStart cudaProfilerStop"
    ),
    "errors": "cudaGetLastError cudaPeekAtLastError cudaGetErrorName cudaGetErrorString",
    "streams": (
        "cudaStreamCreate cudaStreamCreateWithFlags cudaStreamCreateWithPriority "
        "cudaStreamGetPriority cudaStreamGetFlags cudaStreamGetId cudaStreamGetDevice "
        "cudaCtxResetPersistingL2Cache cudaStreamCopyAttributes cudaStreamGetAttribute "
        "cudaStreamSetAttribute cudaStreamDestroy cudaStreamWaitEvent cudaStreamAddCallback "
        "cudaStreamSynchronize cudaStreamQuery cudaStreamAttachMemAsync cudaStreamIsCapturing "
        "cudaStreamBeginRecaptureToGraph"
    ),
    "events": (
        "cudaEventCreate cudaEventCreateWithFlags cudaEventRecord cudaEventRecordWithFlags "
        "cudaEventQuery cudaEventSynchronize cudaEventDestroy cudaEventElapsedTime "
        "cudaEventElapsedTime_v2"
    ),
    "launches and kernels": (
        "cudaLaunchKernel cudaLaunchKernelExC cudaLaunchCooperativeKernel cudaFuncSetCacheConfig "
        "cudaFuncGetAttributes cudaFuncSetAttribute cudaFuncGetName cudaFuncGetParamInfo "
        "cudaLaunchHostFunc cudaFuncSetSharedMemConfig cudaGetDriverEntryPoint "
        "cudaGetDriverEntryPointByVersion cudaGetFuncBySymbol cudaGetKernel cudaFuncGetParamCount "
        "cudaLaunchHostFunc_v2 cudaKernelSetAttributeForDevice"
    ),
    "occupancy": (
        "cudaOccupancyMaxActiveBlocksPerMultiprocessor cudaOccupancyAvailableDynamicSMemPerBlock "
        "cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags cudaOccupancyMaxPotentialClusterSize "
        "cudaOccupancyMaxActiveClusters"
    ),
    "memory": (
        "cudaDeviceRegisterAsyncNotification cudaDeviceUnregisterAsyncNotification cudaMallocManaged "
        "cudaMalloc cudaMallocHost cudaMallocPitch cudaFree cudaFreeHost cudaHostAlloc "
        "cudaHostRegister cudaHostUnregister cudaHostGetDevicePointer cudaHostGetFlags cudaMalloc3D "
        "cudaMemcpy3D cudaMemcpy3DAsync cudaMemGetInfo cudaMemcpy cudaMemcpy2D cudaMemcpyToSymbol "
        "cudaMemcpyFromSymbol cudaMemcpyAsync cudaMemcpyBatchAsync cudaMemcpy3DBatchAsync "
        "cudaMemcpy2DAsync cudaMemcpyToSymbolAsync cudaMemcpyFromSymbolAsync cudaMemset cudaMemset2D "
        "cudaMemset3D cudaMemsetAsync cudaMemset2DAsync cudaMemset3DAsync cudaGetSymbolAddress "
        "cudaGetSymbolSize cudaMemPrefetchAsync cudaMemPrefetchBatchAsync cudaMemDiscardBatchAsync "
        "cudaMemDiscardAndPrefetchBatchAsync cudaMemAdvise cudaMemRangeGetAttribute "
        "cudaMemRangeGetAttributes cudaPointerGetAttributes cudaMemcpyWithAttributesAsync "
        "cudaMemcpy3DWithAttributesAsync cudaMemPrefetchAsync_v2 cudaMemAdvise_v2"
    ),
    "memory pools": (
        "cudaDeviceGetDefaultMemPool cudaDeviceSetMemPool cudaDeviceGetMemPool cudaMallocAsync "
        "cudaFreeAsync cudaMemPoolTrimTo cudaMemPoolSetAttribute cudaMemPoolGetAttribute "
        "cudaMemPoolSetAccess cudaMemPoolGetAccess cudaMemPoolCreate cudaMemPoolDestroy "
        "cudaMemGetDefaultMemPool cudaMemGetMemPool cudaMemSetMemPool cudaMallocFromPoolAsync "
        "cudaMemGetLocationInfo"
    ),
    "graphs": (
        "cudaStreamBeginCapture cudaStreamBeginCaptureToGraph cudaThreadExchangeStreamCaptureMode "
        "cudaStreamEndCapture cudaStreamGetCaptureInfo cudaStreamUpdateCaptureDependencies "
        "cudaGraphCreate cudaGraphAddKernelNode cudaGraphKernelNodeGetParams "
        "cudaGraphKernelNodeSetParams cudaGraphKernelNodeCopyAttributes "
        "cudaGraphKernelNodeGetAttribute cudaGraphKernelNodeSetAttribute cudaGraphAddMemcpyNode "
        "cudaGraphAddMemcpyNodeToSymbol cudaGraphAddMemcpyNodeFromSymbol cudaGraphAddMemcpyNode1D "
        "cudaGraphMemcpyNodeGetParams cudaGraphMemcpyNodeSetParams "
        "cudaGraphMemcpyNodeSetParamsToSymbol cudaGraphMemcpyNodeSetParamsFromSymbol "
        "cudaGraphMemcpyNodeSetParams1D cudaGraphAddMemsetNode cudaGraphMemsetNodeGetParams "
        "cudaGraphMemsetNodeSetParams cudaGraphAddHostNode cudaGraphHostNodeGetParams "
        "cudaGraphHostNodeSetParams cudaGraphAddChildGraphNode cudaGraphChildGraphNodeGetGraph "
        "cudaGraphAddEmptyNode cudaGraphAddEventRecordNode cudaGraphEventRecordNodeGetEvent "
        "cudaGraphEventRecordNodeSetEvent cudaGraphAddEventWaitNode cudaGraphEventWaitNodeGetEvent "
        "cudaGraphEventWaitNodeSetEvent cudaGraphAddMemAllocNode cudaGraphMemAllocNodeGetParams "
        "cudaGraphAddMemFreeNode cudaGraphMemFreeNodeGetParams cudaDeviceGraphMemTrim "
        "cudaDeviceGetGraphMemAttribute cudaDeviceSetGraphMemAttribute cudaGraphClone "
        "cudaGraphNodeFindInClone cudaGraphNodeGetType cudaGraphGetNodes cudaGraphGetRootNodes "
        "cudaGraphGetEdges cudaGraphNodeGetDependencies cudaGraphNodeGetDependentNodes "
        "cudaGraphAddDependencies cudaGraphRemoveDependencies cudaGraphDestroyNode "
        "cudaGraphInstantiate cudaGraphInstantiateWithFlags cudaGraphInstantiateWithParams "
        "cudaGraphExecGetFlags cudaGraphExecKernelNodeSetParams cudaGraphExecMemcpyNodeSetParams "
        "cudaGraphExecMemcpyNodeSetParamsToSymbol cudaGraphExecMemcpyNodeSetParamsFromSymbol "
        "cudaGraphExecMemcpyNodeSetParams1D cudaGraphExecMemsetNodeSetParams "
        "cudaGraphExecHostNodeSetParams cudaGraphExecChildGraphNodeSetParams "
        "cudaGraphExecEventRecordNodeSetEvent cudaGraphExecEventWaitNodeSetEvent "
        "cudaGraphNodeSetEnabled cudaGraphNodeGetEnabled cudaGraphExecUpdate cudaGraphUpload "
        "cudaGraphLaunch cudaGraphExecDestroy cudaGraphDestroy cudaGraphDebugDotPrint "
        "cudaUserObjectCreate cudaUserObjectRetain cudaUserObjectRelease cudaGraphRetainUserObject "
        "cudaGraphReleaseUserObject cudaGraphAddNode cudaGraphNodeSetParams "
        "cudaGraphExecNodeSetParams cudaGraphConditionalHandleCreate cudaGraphNodeGetContainingGraph "
        "cudaGraphNodeGetLocalId cudaGraphNodeGetToolsId cudaGraphGetId cudaGraphExecGetId "
        "cudaGraphNodeGetParams cudaGraphConditionalHandleCreate_v2 cudaStreamGetCaptureInfo_v3 "
        "cudaStreamUpdateCaptureDependencies_v2 cudaGraphGetEdges_v2 cudaGraphNodeGetDependencies_v2 "
        "cudaGraphNodeGetDependentNodes_v2 cudaGraphAddDependencies_v2 cudaGraphRemoveDependencies_v2 "
        "cudaGraphAddNode_v2 cudaStreamGetCaptureInfo_v2"
    ),
    "several devices": (
        "cudaDeviceFlushGPUDirectRDMAWrites cudaDeviceGetHostAtomicCapabilities "
        "cudaDeviceGetP2PAttribute cudaDeviceGetP2PAtomicCapabilities cudaMemcpy3DPeer "
        "cudaMemcpy3DPeerAsync cudaMemcpyPeer cudaMemcpyPeerAsync cudaDeviceCanAccessPeer "
        "cudaDeviceEnablePeerAccess cudaDeviceDisablePeerAccess "
        "cudaLaunchCooperativeKernelMultiDevice"
    ),
    "parts of a device": (
        "cudaDeviceGetDevResource cudaDevSmResourceSplitByCount cudaDevSmResourceSplit "
        "cudaDevResourceGenerateDesc cudaGreenCtxCreate cudaExecutionCtxDestroy "
        "cudaExecutionCtxGetDevResource cudaExecutionCtxGetDevice cudaExecutionCtxGetId "
        "cudaExecutionCtxStreamCreate cudaExecutionCtxSynchronize cudaStreamGetDevResource "
        "cudaExecutionCtxRecordEvent cudaExecutionCtxWaitEvent cudaDeviceGetExecutionCtx"
    ),
    "arrays, textures and surfaces": (
        "cudaDeviceGetTexture1DLinearMaxWidth cudaMallocArray cudaFreeArray cudaFreeMipmappedArray "
        "cudaMalloc3DArray cudaMallocMipmappedArray cudaGetMipmappedArrayLevel cudaArrayGetInfo "
        "cudaArrayGetPlane cudaArrayGetMemoryRequirements cudaMipmappedArrayGetMemoryRequirements "
        "cudaArrayGetSparseProperties cudaMipmappedArrayGetSparseProperties cudaMemcpy2DToArray "
        "cudaMemcpy2DFromArray cudaMemcpy2DArrayToArray cudaMemcpy2DToArrayAsync "
        "cudaMemcpy2DFromArrayAsync cudaMemcpyToArray cudaMemcpyFromArray cudaMemcpyArrayToArray "
        "cudaMemcpyToArrayAsync cudaMemcpyFromArrayAsync cudaGetChannelDesc cudaCreateChannelDesc "
        "cudaCreateTextureObject cudaDestroyTextureObject cudaGetTextureObjectResourceDesc "
        "cudaGetTextureObjectTextureDesc cudaGetTextureObjectResourceViewDesc cudaCreateSurfaceObject "
        "cudaDestroySurfaceObject cudaGetSurfaceObjectResourceDesc"
    ),
    "other processes": (
        "cudaIpcGetEventHandle cudaIpcOpenEventHandle cudaIpcGetMemHandle cudaIpcOpenMemHandle "
        "cudaIpcCloseMemHandle cudaMemPoolExportToShareableHandle "
        "cudaMemPoolImportFromShareableHandle cudaMemPoolExportPointer cudaMemPoolImportPointer"
    ),
    "memory and semaphores of other APIs": (
        "cudaDeviceGetNvSciSyncAttributes cudaImportExternalMemory cudaExternalMemoryGetMappedBuffer "
        "cudaDestroyExternalMemory cudaImportExternalSemaphore cudaSignalExternalSemaphoresAsync "
        "cudaWaitExternalSemaphoresAsync cudaDestroyExternalSemaphore "
        "cudaGraphAddExternalSemaphoresSignalNode cudaGraphExternalSemaphoresSignalNodeGetParams "
        "cudaGraphExternalSemaphoresSignalNodeSetParams cudaGraphAddExternalSemaphoresWaitNode "
        "cudaGraphExternalSemaphoresWaitNodeGetParams cudaGraphExternalSemaphoresWaitNodeSetParams "
        "cudaGraphExecExternalSemaphoresSignalNodeSetParams "
        "cudaGraphExecExternalSemaphoresWaitNodeSetParams cudaSignalExternalSemaphoresAsync_v2 "
        "cudaWaitExternalSemaphoresAsync_v2 cudaExternalMemoryGetMappedMipmappedArray"
    ),
    "graphics": (
        "cudaGraphicsUnregisterResource cudaGraphicsResourceSetMapFlags cudaGraphicsMapResources "
        "cudaGraphicsUnmapResources cudaGraphicsResourceGetMappedPointer "
        "cudaGraphicsSubResourceGetMappedArray cudaGraphicsResourceGetMappedMipmappedArray"
    ),
    "libraries": (
        "cudaLibraryLoadData cudaLibraryLoadFromFile cudaLibraryUnload cudaLibraryGetKernel "
        "cudaLibraryGetGlobal cudaLibraryGetManaged cudaLibraryGetUnifiedFunction "
        "cudaLibraryGetKernelCount cudaLibraryEnumerateKernels cudaGetExportTable"
    ),
    "logs": (
        "cudaLogsRegisterCallback cudaLogsUnregisterCallback cudaLogsCurrent cudaLogsDumpToFile "
        "cudaLogsDumpToMemory"
    ),
}

ARRAYS = "the layout of arrays, textures and surfaces is the card's own. Read what cudaMalloc gave instead"
DEVICES = "the machine is one device. Run the program on one"
PARTS = "the machine's SMs cannot be divided. Take streams"
PROCESSES = "the machine runs one process. Share memory within it"
OTHER_APIS = "the machine knows no other API. Take CUDA's own memory and events"
GRAPHICS = "the machine has no display. Write the picture into memory, and copy it to the host"
LIBRARIES = "the machine loads kernels with the program. Link them into it"
LOGS = "what fails stands in the machine's findings and notes. Read those"
OWNERS = "graphs own nothing of the program's. Free it behind cudaGraphExecDestroy"
CONDITIONS = "only device code of other modules sets a condition. Let the host decide which graph is launched"
DISCARDED = "what it discards is not followed. Leave it out: no result needs it"
HINTS = "the machine keeps no hints about managed memory. Leave it out"
NOTICES = "the machine notifies nobody. Ask by cudaMemGetInfo"
LATER = "it came with CUDA 13.1 or later. Take the older function"
PEERS = (
    "cudaMemcpyPeer cudaMemcpyPeerAsync cudaDeviceCanAccessPeer cudaDeviceEnablePeerAccess"
    " cudaDeviceDisablePeerAccess"
)
NEWER = (
    "cudaStreamBeginRecaptureToGraph cudaFuncGetParamCount cudaLaunchHostFunc_v2 cudaMemGetLocationInfo"
    " cudaMemcpyWithAttributesAsync cudaMemcpy3DWithAttributesAsync cudaGraphNodeGetContainingGraph"
    " cudaGraphNodeGetLocalId cudaGraphNodeGetToolsId cudaGraphGetId cudaGraphExecGetId"
    " cudaGraphNodeGetParams"
)
DRIVER = "other functions than cuTensorMapEncodeTiled, cuInit, errors' names and texts, and the version"
# What of a function is lacking while the rest of it is there.
IN_PART = {
    "cudaMemcpy3D": "arrays",
    "cudaMemcpy3DAsync": "arrays",
    "cudaGraphAddMemcpyNode": "arrays",
    "cudaGraphAddNode": "semaphores and conditions",
    "cudaMemPoolGetAttribute": "how many bytes a pool holds",
    "cudaGetDriverEntryPoint": DRIVER,
    "cudaGetDriverEntryPointByVersion": DRIVER,
    "cudaHostRegister": "reaching that memory from kernels",
    **dict.fromkeys(PEERS.split(), "a second device"),
}
# Areas of which the stand-in has nothing, or little.
REFUSED_AREAS = {
    "several devices": DEVICES,
    "parts of a device": PARTS,
    "arrays, textures and surfaces": ARRAYS,
    "other processes": PROCESSES,
    "memory and semaphores of other APIs": OTHER_APIS,
    "graphics": GRAPHICS,
    "libraries": LIBRARIES,
    "logs": LOGS,
}
REFUSED = {
    **{
        name: reason
        for area, reason in REFUSED_AREAS.items()
        for name in AREAS[area].split()
        if name not in IN_PART
    },
    **{name: OWNERS for name in AREAS["graphs"].split() if "UserObject" in name},
    "cudaGraphConditionalHandleCreate": CONDITIONS,
    "cudaGraphConditionalHandleCreate_v2": CONDITIONS,
    "cudaGraphDebugDotPrint": "the machine draws no graphs. List their nodes by cudaGraphGetNodes",
    "cudaGetExportTable": "its tables have no manual. Call the functions of the runtime",
    "cudaMemcpy3DBatchAsync": "it is not known yet. Take cudaMemcpy3DAsync for each copy",
    "cudaMemDiscardBatchAsync": DISCARDED,
    "cudaMemDiscardAndPrefetchBatchAsync": DISCARDED,
    "cudaMemRangeGetAttribute": HINTS,
    "cudaMemRangeGetAttributes": HINTS,
    "cudaDeviceRegisterAsyncNotification": NOTICES,
    "cudaDeviceUnregisterAsyncNotification": NOTICES,
    **dict.fromkeys(NEWER.split(), LATER),
}
WAY = "Write that part with kernels, copies, streams and events"


# Attributes of launches without which a launch would be another one.
EARLY = "an event of a launch that still runs is not modelled. Record one behind the launch"
ATTRIBUTES = {
    "cudaLaunchAttributeProgrammaticEvent": EARLY,
    "cudaLaunchAttributeLaunchCompletionEvent": EARLY,
    "cudaLaunchAttributeDeviceUpdatableKernelNode": "no kernel changes a graph. Set its nodes by the host",
}


def refusal(name: str) -> str:
    """Why the stand-in lacks a function or an attribute, and the way out. The name may have an ending, as
    _ptsz."""
    plain = name.removesuffix("_ptsz").removesuffix("_ptds")
    return ATTRIBUTES.get(plain) or REFUSED.get(plain, WAY)
